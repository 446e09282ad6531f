"""Pinned downloads: the hub's word is never taken, a short revision never asked for."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from sharegpt_files import pin_of, write

import workloads
from workloads import download
from workloads.pins import FilePin


@pytest.fixture
def pin(tmp_path: Path) -> FilePin:
    return pin_of(write(tmp_path / "sharegpt.json"))


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return tmp_path / "hub"


def put_in_cache(hub_cache: Path, pin: FilePin, content: bytes) -> Path:
    folder = f"{pin.repo_type}s--" + pin.repo_id.replace("/", "--")
    path = hub_cache / folder / "snapshots" / pin.revision / pin.filename
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    return path


def test_a_cached_file_is_used_offline(hub_cache: Path, pin: FilePin, tmp_path: Path) -> None:
    path = put_in_cache(hub_cache, pin, (tmp_path / pin.filename).read_bytes())
    assert download.cached(pin) == path
    assert download.fetch(pin) == path


def test_corrupt_bytes_under_a_correct_name_are_refused(hub_cache, pin, tmp_path) -> None:
    content = bytearray((tmp_path / pin.filename).read_bytes())
    content[-10] ^= 1
    put_in_cache(hub_cache, pin, bytes(content))
    with pytest.raises(workloads.PinMismatchError, match=r"SHA-256 .* delete it and download"):
        download.fetch(pin)


def test_an_empty_cache_without_network_is_said(hub_cache, pin) -> None:
    assert download.cached(pin) is None
    with pytest.raises(workloads.UnavailableError, match="HF_HUB_OFFLINE forbids"):
        download.fetch(pin)


def test_a_machine_without_names_fails_at_once(hub_cache, pin, monkeypatch) -> None:
    import socket

    from huggingface_hub import constants

    def no_names(*_: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(socket, "getaddrinfo", no_names)
    monkeypatch.setattr("urllib.request.getproxies", dict)
    with pytest.raises(workloads.UnavailableError, match="does not resolve"):
        download.fetch(pin)


@pytest.mark.parametrize(
    "revision", ["main", "192ab21", "", "192AB2185289094FC556EC8CE5CE1E8E587154CA"]
)
def test_a_revision_that_is_not_40_hex_digits_is_refused(hub_cache, pin, revision: str) -> None:
    short = replace(pin, revision=revision)
    for ask in (download.fetch, download.cached):
        with pytest.raises(workloads.WorkloadError, match="not 40 hex digits"):
            ask(short)


@pytest.fixture
def small_hub(pin: FilePin, tmp_path: Path) -> Iterator[tuple[str, dict[str, bytes]]]:
    """A hub on this machine that serves one file; its content can be exchanged."""
    held = {"content": (tmp_path / pin.filename).read_bytes()}

    class Handler(BaseHTTPRequestHandler):
        def _answer(self, send_body: bool) -> None:
            wanted = f"/datasets/{pin.repo_id}/resolve/{pin.revision}/{pin.filename}"
            if self.path != wanted:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(held["content"])))
            # The name that the hub gives the blob stays correct, whatever the bytes are.
            self.send_header("ETag", f'"{pin.sha256}"')
            self.send_header("X-Repo-Commit", pin.revision)
            self.end_headers()
            if send_body:
                self.wfile.write(held["content"])

        def do_HEAD(self) -> None:
            self._answer(send_body=False)

        def do_GET(self) -> None:
            self._answer(send_body=True)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", held
    server.shutdown()
    thread.join()
    server.server_close()


def fetch_elsewhere(endpoint: str, pin: FilePin, hub_cache: Path) -> subprocess.CompletedProcess:
    """fetch() in a process of its own: the hub client reads its endpoint once, on import."""
    code = (
        "from workloads import download, pins, WorkloadError\n"
        f"pin = pins.{pin!r}\n"
        "try:\n    print(download.fetch(pin))\n"
        "except WorkloadError as error:\n    print(type(error).__name__, error)\n"
    )
    environment = {
        **os.environ,
        "HF_ENDPOINT": endpoint,
        "HF_HUB_CACHE": str(hub_cache),
        "HF_HUB_OFFLINE": "0",
        "NO_PROXY": "127.0.0.1",
    }
    return subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )


def test_a_download_lands_in_the_cache_and_is_checked(small_hub, pin, tmp_path) -> None:
    endpoint, held = small_hub
    output = fetch_elsewhere(endpoint, pin, tmp_path / "hub").stdout.strip()
    assert Path(output).read_bytes() == held["content"]
    assert pin.revision in output


def test_a_hub_that_serves_other_bytes_is_caught(small_hub, pin, tmp_path) -> None:
    endpoint, held = small_hub
    held["content"] = held["content"].replace(b"human", b"HUMAN", 1)
    output = fetch_elsewhere(endpoint, pin, tmp_path / "hub").stdout
    assert output.startswith("PinMismatchError")
    assert "SHA-256" in output


def test_a_file_that_the_hub_does_not_have_is_said(small_hub, pin, tmp_path) -> None:
    endpoint, _ = small_hub
    gone = replace(pin, filename="gone.json")
    output = fetch_elsewhere(endpoint, gone, tmp_path / "hub").stdout
    assert output.startswith("UnavailableError")
    assert "gone.json" in output
    assert output.count("\n") == 1


def test_hashing_reports_its_progress(pin, tmp_path) -> None:
    seen = []
    download.check_file(tmp_path / pin.filename, pin, lambda *report: seen.append(report))
    assert seen[-1] == ("hash", pin.size_bytes, pin.size_bytes)
