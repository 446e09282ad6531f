"""Cuts the bytes of a Chrome trace into batches of decoded events, in bounded memory.

A batch ends where ``},{`` stands between two events. That text may also stand inside an event, so
a cut is a guess until the bytes before it decode as a JSON array: a decoder that starts at an
event's first byte and comes out even has necessarily ended between two events. Only the few fields
that attribution needs are decoded; ``args`` stays bytes until a caller wants it.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from k3bench.attribution.byte_stream import ByteStream
from k3bench.attribution.errors import TraceFormatError

# Measured on a Kineto trace: 0.9 GB/s at 1 MiB, 0.7 at 8 MiB, where the events leave the cache.
_BATCH_BYTES = 1 << 20
_CUTS_TRIED = 8
_SEPARATOR = re.compile(rb"[ \t\r\n]*,[ \t\r\n]*(?=\{)")
_EVENTS_KEY = re.compile(rb'"traceEvents"[ \t\r\n]*:[ \t\r\n]*\[')
_FAILED_AT = re.compile(r"\(byte (\d+)\)")
_WHITESPACE = b" \t\r\n"
# A JSON text cut anywhere fails this close to its end, unless it is cut inside a string.
_END_SLACK = 16


class RawEvent(msgspec.Struct, gc=False):
    """One element of ``traceEvents``; ``ts`` and ``dur`` in microseconds, ``args`` undecoded.

    The phase is not decoded: of the phases that Kineto writes only "X" has a duration.
    """

    cat: str = ""
    name: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: float = 0.0
    dur: float | None = None
    args: msgspec.Raw = msgspec.Raw()


_BATCH = msgspec.json.Decoder(list[RawEvent])
# NaN, Infinity and raw control characters in strings are not JSON, but Kineto has written them.
_LENIENT = json.JSONDecoder(strict=False)


@dataclass
class EventScan:
    """Iterates over batches of events; afterwards the rest of the file is described here.

    ``envelope`` holds the keys beside ``traceEvents``; ``cut_off`` says where and why the file
    ended too early, or is empty; ``lenient_events`` counts events that were not strict JSON.
    """

    stream: ByteStream
    envelope: dict[str, Any] = field(default_factory=dict)
    cut_off: str = ""
    lenient_events: int = 0
    _offset: int = 0
    # The text that closes the file after the events: none after a bare array, else a brace.
    _close: bytes = b"}"

    def __iter__(self) -> Iterator[list[RawEvent]]:
        blocks = iter(self.stream)
        buffer = self._read_head(blocks)
        wanted = _BATCH_BYTES
        ended = False
        while True:
            while not ended and len(buffer) < wanted:
                block = next(blocks, None)
                ended = block is None
                buffer += block or b""
            events, used, closed = self._take(buffer, ended)
            if events:
                yield events
            if closed:
                self._read_tail(buffer[used:], blocks)
                return
            if used:
                wanted = _BATCH_BYTES
            elif ended:
                self._note_cut(buffer)
                return
            elif len(buffer) > self.stream.limits.event_bytes:
                raise self._bad(0, f"one event is longer than {len(buffer):,} bytes")
            else:
                wanted = 2 * len(buffer)
            self._offset += used
            buffer = buffer[used:]

    def _read_head(self, blocks: Iterator[bytes]) -> bytes:
        """Reads up to the first event; returns what was read of the events."""
        buffer = b""
        searched = 0
        while len(buffer) <= self.stream.limits.envelope_bytes:
            block = next(blocks, None)
            buffer += block or b""
            start = buffer.lstrip(b"\xef\xbb\xbf" + _WHITESPACE)
            skipped = len(buffer) - len(start)
            if start[:1] == b"[":
                self._close = b""
                self._offset = skipped + 1
                return start[1:]
            if start and start[:1] != b"{":
                raise self._bad(skipped, "this is neither JSON nor gzip")
            for found in _EVENTS_KEY.finditer(buffer, searched):
                searched = found.end()
                head = buffer[: found.start()].rstrip(_WHITESPACE).removesuffix(b",")
                keys = _object_or_none(head + b"}")
                if keys is not None:
                    self.envelope.update(keys)
                    self._offset = found.end()
                    return buffer[found.end() :]
            if block is None:
                if not start:
                    raise self._bad(0, "the file is empty")
                raise self._bad(
                    len(buffer), "no traceEvents array: is this a trace, and is it whole?"
                )
        raise self._bad(
            0, f"no traceEvents array within {self.stream.limits.envelope_bytes:,} bytes"
        )

    def _take(self, buffer: bytes, ended: bool) -> tuple[list[RawEvent], int, bool]:
        """Decodes what it can from the start of ``buffer``.

        Returns the events, how many bytes they took, and whether the array closed after them.
        """
        cuts = [(len(buffer), len(buffer))] if ended else _cuts(buffer)
        for end, following in cuts:
            try:
                text = b"[" + buffer[:end] + (b"" if ended else b"]")
                return _BATCH.decode(text), following, ended
            except msgspec.ValidationError:
                break
            except (msgspec.DecodeError, RecursionError) as error:
                failed_at = _FAILED_AT.search(str(error))
                if "trailing characters" in str(error) and failed_at:
                    close = text.rindex(b"]", 0, int(failed_at[1]))
                    return _BATCH.decode(text[: close + 1]), close, True  # text has one more byte
                if ended or (failed_at and int(failed_at[1]) <= end):
                    break
        return self._take_one_by_one(buffer, ended)

    def _take_one_by_one(self, buffer: bytes, ended: bool) -> tuple[list[RawEvent], int, bool]:
        """The slow way, for what is not strict JSON, and for the last, incomplete batch.

        An event counts as taken once what follows it is seen, so that the next batch starts with
        an event and not with a comma.
        """
        # latin-1 keeps one character to the byte, so that positions stay byte positions.
        text = buffer.decode("latin-1")
        events: list[RawEvent] = []
        start = _skip(text, 0)
        while not text.startswith("]", start):
            try:
                _, end = _LENIENT.raw_decode(text, start)
            except RecursionError:
                raise self._bad(start, "an event is nested too deeply") from None
            except json.JSONDecodeError as error:
                inside = error.pos < len(text) - _END_SLACK
                if inside and not error.msg.startswith("Unterminated string"):
                    raise self._bad(error.pos, error.msg) from None
                return events, start, False
            except ValueError as error:  # an integer of thousands of digits
                raise self._bad(start, str(error).split(";")[0]) from None
            following = _skip(text, end)
            if following == len(text) and not ended:
                return events, start, False
            events.append(self._lenient_event(buffer[start:end], start))
            if following == len(text):
                return events, following, False
            if text[following] == "]":
                return events, following + 1, True
            if text[following] != ",":
                raise self._bad(following, "expected ',' or ']' between two events")
            start = _skip(text, following + 1)
        return events, start + 1, True

    def _lenient_event(self, text: bytes, position: int) -> RawEvent:
        self.lenient_events += 1
        try:
            value = _LENIENT.decode(text.decode("utf-8", "replace"))
            # Through Python's own writer and back: what was NaN becomes null, the rest is typed.
            strict = json.dumps(_finite(value), ensure_ascii=False).encode("utf-8", "replace")
            return msgspec.json.decode(strict, type=RawEvent, strict=False)
        except (ValueError, RecursionError) as error:
            raise self._bad(position, f"an event is not usable: {error}") from None

    def _read_tail(self, buffer: bytes, blocks: Iterator[bytes]) -> None:
        """The keys after the events, and that nothing follows the trace."""
        limit = self.stream.limits.envelope_bytes
        tail = buffer
        for block in blocks:
            tail += block
            if len(tail) > limit:
                raise self._bad(0, f"more than {limit:,} bytes follow the events")
        self.cut_off = self.stream.cut_off
        tail = tail.strip(_WHITESPACE)
        if tail == self._close:
            return
        keys = _object_or_none(b"{" + tail.removeprefix(b","))
        if keys is not None:
            if "traceEvents" in keys:
                raise self._bad(0, "two traceEvents arrays: split merged traces into one a file")
            self.envelope.update(keys)
        elif _EVENTS_KEY.search(tail):
            raise self._bad(
                0, "a second trace follows the first: split merged traces into one a file"
            )
        elif not self.cut_off:
            self.cut_off = "the text after the events is incomplete or malformed"

    def _note_cut(self, buffer: bytes) -> None:
        where = f"cut off at byte {self._offset:,} of the JSON"
        if buffer.strip(_WHITESPACE):
            where += f", in an event of which {len(buffer):,} bytes are there"
        self.cut_off = f"{where} ({self.stream.cut_off})" if self.stream.cut_off else where

    def _bad(self, position: int, what: str) -> TraceFormatError:
        at = self._offset + position
        return TraceFormatError(f"{self.stream.path.name}, byte {at:,} of the JSON: {what}")


def _cuts(buffer: bytes) -> Iterator[tuple[int, int]]:
    """The last few places that look like a boundary: (end of one event, start of the next)."""
    end = len(buffer)
    tried = 0
    while tried < _CUTS_TRIED and (brace := buffer.rfind(b"}", 0, end)) > 0:
        if separator := _SEPARATOR.match(buffer, brace + 1):
            tried += 1
            yield brace + 1, separator.end()
        end = brace


def _skip(text: str, position: int) -> int:
    """The first position from ``position`` on that is not white space."""
    while position < len(text) and text[position] in " \t\r\n":
        position += 1
    return position


def _object_or_none(text: bytes) -> dict[str, Any] | None:
    try:
        value = _LENIENT.decode(text.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _finite(value: Any) -> Any:
    """``value`` with every NaN and infinity replaced by None, as JSON can hold it."""
    if isinstance(value, float) and value - value != 0.0:
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return value
