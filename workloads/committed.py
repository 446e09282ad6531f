"""The data files under version control: read only after their bytes matched the pinned hash."""

from pathlib import Path

from workloads import pins
from workloads.errors import MissingInputError, PinMismatchError
from workloads.store import sha256_bytes

DIRECTORY = Path(__file__).parent / "data"


def committed_bytes(name: str) -> bytes:
    """The content of ``workloads/data/<name>``, checked against ``pins.DATA_FILE_SHA256``."""
    try:
        content = (DIRECTORY / name).read_bytes()
    except FileNotFoundError:
        raise MissingInputError(
            f"workloads/data/{name} is missing: restore it from version control"
        ) from None
    require_pinned(name, content)
    return content


def require_pinned(name: str, content: bytes) -> None:
    """Raise ``PinMismatchError`` unless the bytes are those pinned for the data file ``name``."""
    found = sha256_bytes(content)
    if found != pins.DATA_FILE_SHA256[name]:
        raise PinMismatchError(
            f"workloads/data/{name} has SHA-256 {found}, pinned {pins.DATA_FILE_SHA256[name]}: "
            "restore it from version control"
        )
