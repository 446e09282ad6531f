"""Talks to a serving engine over HTTP: streamed completions with arrival times, and the profiler.

Two dialects. ``sglang``: /generate with token ids, and a profiler that stops itself after a number
of steps. ``openai``: /v1/completions (vLLM and others), and a profiler that we stop. Standard
library only, one connection a request, so that nothing sits between the socket and the clock.
"""

import http.client
import json
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

Dialect = Literal["sglang", "openai"]

_DONE = "[DONE]"
_MAX_LINE_BYTES = 16 << 20
_MAX_BODY_BYTES = 64 << 20
_SHOWN = 200


class ServerError(ValueError):
    """The server could not be used. ``reason``: unavailable, refused, or protocol.

    ``status`` is the HTTP status of a refusal, None where none came.
    """

    def __init__(self, message: str, reason: str, status: int | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.status = status


@dataclass(frozen=True)
class Arrival:
    """One streamed chunk: when it came, in seconds after the request was sent, and its tokens."""

    after_s: float
    tokens: int


@dataclass(frozen=True)
class Completion:
    """A streamed completion; ``ttft_s`` is the arrival of the first token."""

    arrivals: tuple[Arrival, ...]
    prompt_tokens: int | None
    cached_tokens: int | None

    @property
    def ttft_s(self) -> float:
        return self.arrivals[0].after_s

    @property
    def tokens(self) -> int:
        return sum(arrival.tokens for arrival in self.arrivals)

    @property
    def itl_s(self) -> tuple[float, ...]:
        """Gaps in seconds before every chunk that brought exactly one token, the first left out.

        A chunk of several tokens spans several steps; its gap is no inter-token latency.
        """
        pairs = zip(self.arrivals, self.arrivals[1:], strict=False)
        return tuple(b.after_s - a.after_s for a, b in pairs if b.tokens == 1)


class ServerClient:
    """One server. ``url``: http(s)://host:port, ``timeout_s``: the longest silence to sit through.

    ``model``: the name that the openai dialect must send.
    """

    def __init__(
        self,
        url: str,
        *,
        dialect: Dialect = "sglang",
        model: str | None = None,
        timeout_s: float = 600.0,
    ) -> None:
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in ("http", "https") or not parts.hostname or port == -1:
            raise ServerError(f"{url}: expected http://HOST:PORT", "protocol")
        if parts.query or parts.fragment or parts.path not in ("", "/"):
            raise ServerError(f"{url}: give the server's address alone, without a path", "protocol")
        if dialect == "openai" and not model:
            raise ServerError("the openai dialect needs the model's name", "protocol")
        self.address = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        self.dialect: Dialect = dialect
        self.model = model
        self._host, self._port, self._secure = parts.hostname, port, parts.scheme == "https"
        self._timeout_s = timeout_s

    def generate(
        self,
        input_ids: Sequence[int],
        max_new_tokens: int,
        on_token: Callable[[int], None] | None = None,
    ) -> Completion:
        """Stream one greedy completion of exactly ``max_new_tokens`` tokens; EOS is ignored.

        ``on_token`` is called after every chunk with the tokens so far. Raises ServerError if the
        stream is refused, cut, or of another length.
        """
        path, body = self._request(input_ids, max_new_tokens)
        arrivals: list[Arrival] = []
        prompt_tokens = cached_tokens = None
        counted = 0
        with self._open("POST", path, body) as (response, sent):
            for message in _messages(response, path):
                now = time.perf_counter() - sent
                if "error" in message:
                    raise ServerError(f"{path}: the server says: {_short(message)}", "refused")
                usage = message.get("meta_info") or message.get("usage") or {}
                prompt_tokens = usage.get("prompt_tokens", prompt_tokens)
                cached_tokens = usage.get("cached_tokens", cached_tokens)
                new = self._new_tokens(message, usage, counted)
                if new > 0:
                    counted += new
                    arrivals.append(Arrival(now, new))
                    if on_token is not None:
                        on_token(counted)
        if counted != max_new_tokens:
            raise ServerError(
                f"{path}: {counted} tokens came, {max_new_tokens} were asked for: "
                "does the server honour ignore_eos and its context limit?",
                "protocol",
            )
        if prompt_tokens is not None and prompt_tokens != len(input_ids):
            raise ServerError(
                f"{path}: the server counts {prompt_tokens} prompt tokens, {len(input_ids)} were "
                "sent: it adds or drops tokens",
                "protocol",
            )
        return Completion(tuple(arrivals), prompt_tokens, cached_tokens)

    def _request(self, input_ids: Sequence[int], tokens: int) -> tuple[str, dict[str, Any]]:
        if self.dialect == "sglang":
            sampling = {"max_new_tokens": tokens, "temperature": 0.0, "ignore_eos": True}
            body = {"input_ids": list(input_ids), "sampling_params": sampling, "stream": True}
            return "/generate", body
        return "/v1/completions", {
            "model": self.model,
            "prompt": list(input_ids),
            "max_tokens": tokens,
            "temperature": 0.0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        }

    def _new_tokens(self, message: dict[str, Any], usage: dict[str, Any], counted: int) -> int:
        total = usage.get("completion_tokens")
        if isinstance(total, int) and not isinstance(total, bool):
            return total - counted
        if self.dialect == "sglang":
            raise ServerError(
                f"/generate: no meta_info.completion_tokens in {_short(message)}: "
                "is this an sglang server?",
                "protocol",
            )
        # Without running usage figures, a chunk that carries a choice is one token.
        return 1 if message.get("choices") else 0

    def start_profile(
        self,
        *,
        output_dir: str,
        prefix: str,
        num_steps: int | None = None,
        activities: Sequence[str] = ("CPU", "GPU"),
    ) -> None:
        """Start the torch profiler; with ``num_steps``, sglang stops it after that many steps."""
        body: dict[str, Any] = {
            "output_dir": output_dir,
            "profile_prefix": prefix,
            "activities": list(activities),
            "record_shapes": False,
            "with_stack": False,
        }
        if num_steps is not None:
            body["num_steps"] = num_steps
        self.request("POST", "/start_profile", body)

    def stop_profile(self) -> None:
        """Stop the profiler; returns when the server has answered, which can take minutes."""
        self.request("POST", "/stop_profile", {})

    def flush_cache(self) -> None:
        """Drop every cached prefix, so that the next prompt is prefilled whole.

        sglang refuses while a request runs, and the last one may still be on its way out when its
        end mark has come: asked again for a few seconds.
        """
        path = "/flush_cache" if self.dialect == "sglang" else "/reset_prefix_cache"
        for wait_s in (0.1, 0.4, 1.0, 2.0, None):
            try:
                self.request("POST", path, {})
                return
            except ServerError as error:
                if error.status != http.client.BAD_REQUEST or wait_s is None:
                    raise
                time.sleep(wait_s)

    def server_info(self) -> dict[str, Any] | None:
        """The server's arguments, or None where it does not tell them."""
        for path in ("/get_server_info", "/server_info"):
            try:
                answer = json.loads(self.request("GET", path))
            except ServerError as error:
                if error.reason != "refused":
                    raise
                continue
            except ValueError:
                continue
            if isinstance(answer, dict):
                return answer
        return None

    def request(self, method: str, path: str, body: dict[str, Any] | None = None) -> bytes:
        """One request and its whole answer; ServerError for any status but 2xx."""
        with self._open(method, path, body) as (response, _):
            content: bytes = response.read(_MAX_BODY_BYTES + 1)
        if len(content) > _MAX_BODY_BYTES:
            raise ServerError(f"{path}: answers more than {_MAX_BODY_BYTES} bytes", "protocol")
        return content

    @contextmanager
    def _open(
        self, method: str, path: str, body: dict[str, Any] | None
    ) -> Iterator[tuple[http.client.HTTPResponse, float]]:
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=self._timeout_s)
        headers = {"Content-Type": "application/json"}
        content = None if body is None else json.dumps(body).encode()
        try:
            connection.connect()
            # Small streamed chunks must not wait for an acknowledgement.
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sent = time.perf_counter()
            connection.request(method, path, content, headers)
            response = connection.getresponse()
            if not 200 <= response.status < 300:
                said = response.read(_SHOWN).decode("utf-8", "replace").strip()
                raise ServerError(
                    f"{path}: HTTP {response.status}: {_short(said)}", "refused", response.status
                )
            yield response, sent
        except TimeoutError as error:
            raise ServerError(
                f"{self.address}{path}: silent for {self._timeout_s:g} s", "unavailable"
            ) from error
        except OSError as error:
            raise ServerError(
                f"{self.address}{path}: {error.strerror or error}: is the server up?", "unavailable"
            ) from error
        except http.client.HTTPException as error:
            raise ServerError(
                f"{self.address}{path}: the connection broke: {_short(repr(error))}", "unavailable"
            ) from error
        finally:
            connection.close()


def _messages(response: http.client.HTTPResponse, path: str) -> Iterator[dict[str, Any]]:
    """The JSON objects of a server-sent event stream, up to its end mark.

    A connection closed early looks like an ordinary end of file: only the end mark tells.
    """
    while True:
        line = response.readline(_MAX_LINE_BYTES)
        if not line:
            raise ServerError(f"{path}: the stream was cut before its end mark", "unavailable")
        if not line.startswith(b"data:"):
            continue
        data = line[len(b"data:") :].strip()
        if data.decode("utf-8", "replace") == _DONE:
            return
        try:
            message = json.loads(data)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            raise ServerError(f"{path}: no JSON object in the stream: {_short(data)}", "protocol")
        yield message


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    text = "".join(c if c.isprintable() else " " for c in text)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
