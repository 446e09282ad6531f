"""Fetching a pinned file from the hub, and checking its bytes ourselves.

The hub client has returned corrupt bytes under a correct blob name without complaint, so nothing is
trusted before its size and SHA-256 were computed here, downloaded or cached alike.
"""

import re
import socket
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path

from workloads.errors import MissingInputError, PinMismatchError, UnavailableError, WorkloadError
from workloads.pins import FilePin
from workloads.store import sha256_file

_FULL_REVISION = re.compile(r"[0-9a-f]{40}")

# What a caller shows while a step runs: (step, done, total); total is None where unknown.
Progress = Callable[[str, int, int | None], None]


def no_progress(step: str, done: int, total: int | None) -> None:
    """The progress of a caller who shows none."""


def check_file(path: Path, pin: FilePin, progress: Progress = no_progress) -> None:
    """Raise unless ``path`` holds exactly the pinned bytes (size first: it costs nothing)."""
    try:
        size_bytes = path.stat().st_size
    except FileNotFoundError:
        raise MissingInputError(f"{path} is not there: it should hold {pin.filename}") from None
    mend = f"delete it and download {pin.repo_id} at {pin.revision} again"
    if size_bytes != pin.size_bytes:
        raise PinMismatchError(
            f"{path} has {size_bytes:,} bytes, pinned {pin.size_bytes:,} for {pin.filename}: {mend}"
        )
    found = sha256_file(path, lambda done: progress("hash", done, size_bytes))
    if found != pin.sha256:
        raise PinMismatchError(
            f"{path} has SHA-256 {found}, pinned {pin.sha256} for {pin.filename}: {mend}"
        )


def fetch(pin: FilePin, progress: Progress = no_progress) -> Path:
    """The local path of a pinned file: from the hub's cache, else downloaded; bytes checked.

    With ``HF_HUB_OFFLINE=1`` only the cache is asked. Raises ``UnavailableError`` where neither has
    the file, ``PinMismatchError`` where its bytes are others, ``WorkloadError`` for a short
    revision.
    """
    path = cached(pin) or _download(pin)
    check_file(path, pin, progress)
    return path


def _download(pin: FilePin) -> Path:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    what = f"{pin.filename} of {pin.repo_id} at {pin.revision} is not in the hub cache and"
    _require_resolvable_hub(what)
    try:
        return Path(
            hf_hub_download(
                repo_id=pin.repo_id,
                filename=pin.filename,
                repo_type=pin.repo_type,
                revision=pin.revision,
            )
        )
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        reason = str(error).strip().splitlines() or ["no reason given"]
        raise UnavailableError(
            f"{what} could not be downloaded ({type(error).__name__}: {reason[0]})"
        ) from error


def _require_resolvable_hub(what: str) -> None:
    """Fail at once on a machine without network, where the hub client retries for 23 s."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        raise UnavailableError(f"{what} HF_HUB_OFFLINE forbids downloading it")
    # Behind a proxy the name may be the proxy's to resolve.
    host = urllib.parse.urlsplit(constants.ENDPOINT).hostname
    if host is None or urllib.request.getproxies():
        return
    try:
        socket.getaddrinfo(host, None)
    except socket.gaierror as error:
        raise UnavailableError(
            f"{what} could not be downloaded: {host} does not resolve (no network?)"
        ) from error


def cached(pin: FilePin) -> Path | None:
    """Where the hub's cache has a pinned file, or None; nothing is downloaded or checked."""
    _require_full_revision(pin)
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(
        pin.repo_id, pin.filename, revision=pin.revision, repo_type=pin.repo_type
    )
    return Path(found) if isinstance(found, str) else None


def _require_full_revision(pin: FilePin) -> None:
    if not _FULL_REVISION.fullmatch(pin.revision):
        raise WorkloadError(
            f"revision {pin.revision!r} of {pin.repo_id} is not 40 hex digits: a branch or a short "
            "hash can move, and does not resolve offline; give the full commit"
        )
