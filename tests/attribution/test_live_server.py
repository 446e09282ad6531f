"""The HTTP driver against a local server, well-behaved and not."""

import socket
from collections.abc import Iterator

import pytest
from attribution.fake_server import FakeServer

from k3bench.attribution.live.server import ServerClient, ServerError


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as running:
        yield running


def client_of(server: FakeServer, **options: object) -> ServerClient:
    return ServerClient(server.url, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("dialect", ["sglang", "openai"])
def test_every_token_of_a_stream_is_timed_in_order(server: FakeServer, dialect: str) -> None:
    client = client_of(server, dialect=dialect, model="toy")
    completion = client.generate([5, 6, 7], 20)
    assert completion.tokens == 20
    assert completion.prompt_tokens == 3
    assert len(completion.itl_s) == 19
    # The server sleeps 2 ms before every token but the first: no gap can be much shorter on
    # average, though two may arrive together.
    assert sum(completion.itl_s) >= 19 * 0.002 * 0.9


def test_a_slow_first_token_is_in_the_ttft_and_in_no_gap(server: FakeServer) -> None:
    server.behaviour.first_token_s = 0.3
    completion = client_of(server).generate([1], 5)
    assert completion.ttft_s >= 0.3
    assert max(completion.itl_s) < 0.3


def test_tokens_that_come_together_are_no_inter_token_latency(server: FakeServer) -> None:
    server.behaviour.coalesce = 3
    completion = client_of(server).generate([1], 8)
    assert [arrival.tokens for arrival in completion.arrivals] == [1, 3, 3, 1]
    assert len(completion.itl_s) == 1


def test_a_refused_connection_is_unavailable() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with pytest.raises(ServerError, match="Connection refused: is the server up") as raised:
        ServerClient(f"http://127.0.0.1:{port}").generate([1], 1)
    assert raised.value.reason == "unavailable"


def test_a_status_500_is_refused_with_what_the_server_said(server: FakeServer) -> None:
    server.behaviour.fail_with = {"/generate": 500}
    with pytest.raises(ServerError, match=r"/generate: HTTP 500: <b>broken \[31m</b>") as raised:
        client_of(server).generate([1], 1)
    assert raised.value.reason == "refused"
    assert "\x1b" not in str(raised.value)


@pytest.mark.parametrize("after", [0, 1, 7], ids=lambda n: f"after-{n}-tokens")
def test_a_cut_stream_is_an_error_and_no_short_completion(server: FakeServer, after: int) -> None:
    server.behaviour.cut_after = after
    with pytest.raises(ServerError, match=r"cut before|connection broke|is the server"):
        client_of(server).generate([1], 10)


def test_a_silent_server_times_out(server: FakeServer) -> None:
    server.behaviour.silent_s = 0.5
    with pytest.raises(ServerError, match=r"silent for 0\.1 s") as raised:
        client_of(server, timeout_s=0.1).generate([1], 1)
    assert raised.value.reason == "unavailable"


def test_a_stream_of_another_length_is_an_error(server: FakeServer) -> None:
    server.behaviour.tokens_short = 1
    with pytest.raises(ServerError, match="9 tokens came, 10 were asked for"):
        client_of(server).generate([1], 10)


def test_a_prompt_of_another_length_is_an_error(server: FakeServer) -> None:
    server.behaviour.extra_prompt_tokens = 1
    with pytest.raises(ServerError, match="counts 3 prompt tokens, 2 were sent"):
        client_of(server).generate([1, 2], 1)


@pytest.mark.parametrize(
    "garbage",
    [b"data: {\n\n", b"data: [1]\n\n", b"data: \xff\n\n", b"data: " + b"[" * 99_999 + b"\n"],
    ids=["cut-object", "array", "no-utf8", "deep"],
)
def test_a_malformed_event_is_an_error(server: FakeServer, garbage: bytes) -> None:
    server.behaviour.garbage = garbage
    with pytest.raises(ServerError, match="no JSON object in the stream"):
        client_of(server).generate([1], 1)


def test_comments_and_blank_lines_of_the_stream_are_skipped(server: FakeServer) -> None:
    server.behaviour.garbage = b": keep-alive\n\nevent: x\n\n"
    assert client_of(server).generate([1], 2).tokens == 2


def test_an_error_inside_the_stream_is_refused(server: FakeServer) -> None:
    server.behaviour.error_in_stream = True
    with pytest.raises(ServerError, match="out of memory"):
        client_of(server).generate([1], 1)


def test_a_flush_refused_while_a_request_ends_is_asked_for_again(server: FakeServer) -> None:
    server.behaviour.refuse_flushes = 2
    client_of(server).flush_cache()
    assert server.paths() == ["/flush_cache"] * 3


def test_a_server_that_tells_nothing_of_itself_is_no_error(server: FakeServer) -> None:
    server.behaviour.info = None
    assert client_of(server).server_info() is None


@pytest.mark.parametrize(
    "url",
    ["127.0.0.1:30000", "ftp://host", "http://", "http://h:99999", "http://h/v1", "http://h?x"],
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ServerError, match=r"expected http|address alone"):
        ServerClient(url)


def test_the_openai_dialect_needs_a_model() -> None:
    with pytest.raises(ServerError, match="needs the model's name"):
        ServerClient("http://127.0.0.1:1", dialect="openai")
