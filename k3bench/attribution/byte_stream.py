"""A trace file as a stream of decompressed blocks, hashed as it is read, within stated limits."""

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from isal import isal_zlib

from k3bench.attribution.composition import SourceFile
from k3bench.attribution.errors import TraceFormatError

_GZIP_MAGIC = b"\x1f\x8b"
_READ_BYTES = 1 << 20


@dataclass(frozen=True)
class ReadLimits:
    """Bounds on what one trace may cost. Every limit is in bytes but for ``kept_events``.

    ``text_bytes``: the JSON, decompressed. ``event_bytes``: one event. ``envelope_bytes``: what
    stands before and after the events. ``kept_events``: device work, launches and ranges kept in
    the table (under 200 bytes each at the peak). ``name_bytes``: all distinct names together.
    ``expansion``: how often its own size a gzip file may inflate to, judged from
    ``expansion_from_bytes`` on; real traces reach 10 to 40 times, a bomb nearly deflate's 1032.
    """

    text_bytes: int = 16 << 30
    event_bytes: int = 16 << 20
    envelope_bytes: int = 16 << 20
    kept_events: int = 20_000_000
    name_bytes: int = 256 << 20
    expansion: float = 200.0
    expansion_from_bytes: int = 64 << 20


class ByteStream:
    """Blocks of a plain or gzipped file, at most 1 MiB each.

    Reading, hashing and inflating run one block ahead in a thread: all three release the GIL.
    After the last block, ``source`` describes the file and ``cut_off`` says why a gzip stream
    ended early, or is empty.
    """

    def __init__(self, path: Path, limits: ReadLimits) -> None:
        self.path = path
        self.limits = limits
        self.cut_off = ""
        self.text_bytes = 0
        self._file_bytes = 0
        self._hash = hashlib.sha256()

    @property
    def source(self) -> SourceFile:
        return SourceFile(self.path.name, self._file_bytes, self._hash.hexdigest())

    def __iter__(self) -> Iterator[bytes]:
        blocks = self._blocks()
        with ThreadPoolExecutor(1) as pool:
            coming = pool.submit(next, blocks, None)
            while (block := coming.result()) is not None:
                coming = pool.submit(next, blocks, None)
                yield block

    def _blocks(self) -> Iterator[bytes]:
        raw = self._raw_blocks()
        first = next(raw, b"")
        if first.startswith(_GZIP_MAGIC):
            inflated = self._inflate(first, raw)
        else:
            inflated = _chain(first, raw)
        for block in inflated:
            self.text_bytes += len(block)
            if self.text_bytes > self.limits.text_bytes:
                raise TraceFormatError(
                    f"{self.path.name}: more than {self.limits.text_bytes:,} bytes of JSON; raise "
                    "the limit (--max-gib) if the file is meant to be this large"
                )
            yield block

    def _raw_blocks(self) -> Iterator[bytes]:
        with self.path.open("rb") as stream:
            while block := stream.read(_READ_BYTES):
                self._hash.update(block)
                self._file_bytes += len(block)
                yield block

    def _inflate(self, first: bytes, raw: Iterator[bytes]) -> Iterator[bytes]:
        """gzip members one after another; a stream that ends early sets ``cut_off``.

        ISA-L inflates three times as fast as zlib, which took 40% of the time of a gzipped trace.
        """
        inflater = isal_zlib.decompressobj(wbits=31)
        made = 0
        for data in _chain(first, raw):
            while data:
                if inflater.eof:
                    # Some writers pad with zeros; anything else must be one more gzip member.
                    data = data.lstrip(b"\0")
                    if not data:
                        break
                    inflater = isal_zlib.decompressobj(wbits=31)
                try:
                    block = inflater.decompress(data, _READ_BYTES)
                except isal_zlib.error as error:  # type: ignore[misc]  # its stub is wrong
                    raise TraceFormatError(
                        f"{self.path.name}: not a sound gzip file near byte {self._file_bytes:,} "
                        f"({error}); copy the trace again"
                    ) from None
                data = inflater.unused_data if inflater.eof else inflater.unconsumed_tail
                made += len(block)
                allowed = self.limits.expansion * self._file_bytes
                if made > max(self.limits.expansion_from_bytes, allowed):
                    raise TraceFormatError(
                        f"{self.path.name}: gzip expands more than {self.limits.expansion:.0f} "
                        "times, as no trace does; inflate it by hand if it is sound"
                    )
                if block:
                    yield block
        while not inflater.eof and (block := inflater.decompress(b"", _READ_BYTES)):
            yield block
        if not inflater.eof:
            self.cut_off = "the gzip stream ends before its end mark"


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    yield from rest
