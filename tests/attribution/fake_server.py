"""A small serving engine on loopback: streams, pretends to profile, misbehaves on request."""

import gzip
import json
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

KERNEL = {"ph": "X", "cat": "kernel", "name": "k", "ts": 1.5, "dur": 2.5, "pid": 0, "tid": 7}
RANGE = {
    "ph": "X",
    "cat": "user_annotation",
    "name": "K3/moe",
    "ts": 1,
    "dur": 9,
    "pid": 1,
    "tid": 1,
}


@dataclass
class Behaviour:
    """What the server does; a test changes what it is about."""

    first_token_s: float = 0.0
    token_s: float = 0.002
    coalesce: int = 1
    cut_after: int | None = None
    fail_with: dict[str, int] = field(default_factory=dict)  # path to status
    refuse_flushes: int = 0
    silent_s: float = 0.0
    cached_tokens: int = 0
    extra_prompt_tokens: int = 0
    tokens_short: int = 0
    garbage: bytes | None = None
    error_in_stream: bool = False
    info: dict[str, Any] | None = field(
        default_factory=lambda: {"disable_cuda_graph": False, "tp_size": 1, "model_path": "toy"}
    )
    events: tuple[dict[str, Any], ...] = (KERNEL, RANGE)
    write_trace: bool = True
    truncate_trace: bool = False
    ranks: int = 1
    output_dir: Path | None = None


class FakeServer:
    """The server on a thread; ``requests`` is every (method, path, body) it saw, in order."""

    def __init__(self) -> None:
        self.behaviour = Behaviour()
        self.requests: list[tuple[str, str, dict[str, Any]]] = []
        self.profile: dict[str, Any] | None = None
        self.tokens_when_profiled: list[int] = []
        self._streamed = 0
        self._written = 0
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def do_GET(self) -> None:
                owner.handle(self, {})

            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                owner.handle(self, json.loads(self.rfile.read(length) or b"{}"))

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_: Any) -> None:
                """A client that hangs up is part of the tests, and no news."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def __enter__(self) -> "FakeServer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def paths(self) -> list[str]:
        return [path for _, path, _ in self.requests]

    def handle(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        behaviour = self.behaviour
        self.requests.append((handler.command, handler.path, body))
        time.sleep(behaviour.silent_s)
        if handler.path in behaviour.fail_with:
            _answer(handler, behaviour.fail_with[handler.path], b"<b>broken\x1b[31m</b>")
        elif handler.path in ("/generate", "/v1/completions"):
            self._stream(handler, body)
        elif handler.path in ("/flush_cache", "/reset_prefix_cache"):
            refused = behaviour.refuse_flushes > 0
            behaviour.refuse_flushes -= refused
            _answer(handler, 400 if refused else 200, b"busy" if refused else b"ok")
        elif handler.path == "/start_profile":
            self.profile = body
            self.tokens_when_profiled.append(self._streamed)
            _answer(handler, 200, b"Start profiling.")
        elif handler.path == "/stop_profile":
            if self.profile is None:
                _answer(handler, 500, b"no profile in progress")
            else:
                self._finish_profile()
                _answer(handler, 200, b"Stop profiling.")
        elif handler.path == "/get_server_info" and behaviour.info is not None:
            _answer(handler, 200, json.dumps(behaviour.info).encode())
        else:
            _answer(handler, 404, b"Not Found")

    def _stream(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        behaviour = self.behaviour
        sglang = handler.path == "/generate"
        wanted = body["sampling_params"]["max_new_tokens"] if sglang else body["max_tokens"]
        prompt = len(body["input_ids" if sglang else "prompt"])
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        time.sleep(behaviour.first_token_s)
        if behaviour.garbage is not None:
            _chunk(handler, behaviour.garbage)
        if behaviour.error_in_stream:
            _event(handler, {"error": {"message": "out of memory"}})
        steps_left = None
        self._streamed = 0
        total = wanted - behaviour.tokens_short
        while self._streamed < total:
            if self._streamed == behaviour.cut_after:
                handler.close_connection = True
                handler.connection.close()
                return
            step = 1 if self._streamed == 0 else min(behaviour.coalesce, total - self._streamed)
            if self._streamed:
                time.sleep(behaviour.token_s)
            self._streamed += step
            usage = {
                "prompt_tokens": prompt + behaviour.extra_prompt_tokens,
                "completion_tokens": self._streamed,
                "cached_tokens": behaviour.cached_tokens,
            }
            _event(handler, {"meta_info": usage} if sglang else {"choices": [{}], "usage": usage})
            if steps_left is None and self.profile is not None and "num_steps" in self.profile:
                steps_left = self.profile["num_steps"] + 1
            if steps_left is not None:
                steps_left -= 1
                if steps_left == 0:
                    self._finish_profile()
        _chunk(handler, b"data: [DONE]\n\n")
        _chunk(handler, b"")

    def _finish_profile(self) -> None:
        assert self.profile is not None
        behaviour, profile = self.behaviour, self.profile
        self.profile = None
        if not behaviour.write_trace:
            return
        directory = behaviour.output_dir or Path(profile["output_dir"])
        directory.mkdir(parents=True, exist_ok=True)
        for rank in range(behaviour.ranks):
            content = gzip.compress(json.dumps({"traceEvents": list(behaviour.events)}).encode())
            if behaviour.truncate_trace:
                content = content[: len(content) // 2]
            self._written += 1
            name = f"{profile['profile_prefix']}-{self._written}-TP-{rank}.trace.json.gz"
            (directory / name).write_bytes(content)


def _event(handler: BaseHTTPRequestHandler, message: dict[str, Any]) -> None:
    _chunk(handler, b"data: " + json.dumps(message).encode() + b"\n\n")


def _chunk(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
    handler.wfile.flush()


def _answer(handler: BaseHTTPRequestHandler, status: int, content: bytes) -> None:
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content)
