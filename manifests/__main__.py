"""`python -m manifests capture --out FILE` and `python -m manifests id FILE`.

A program of its own, so that the harness can take the manifest with the very interpreter that runs
the benchmarks. Exit codes: 0 good, 64 usage, 65 malformed input, 66 missing input, 73 cannot write.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

from manifests.capture import capture
from manifests.errors import ManifestError
from manifests.identity import fingerprint, manifest_id
from manifests.validation import validate

_USAGE, _BAD_DATA, _NO_INPUT, _CANNOT_CREATE = 64, 65, 66, 73


class _WriteError(Exception):
    """The manifest was captured, but its file could not be written."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(_USAGE, f"{self.prog}: error: {message}\n")


def main(arguments: list[str] | None = None) -> int:
    """Runs one command; returns its exit code."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "id":
            manifest = _read(options.file)
            validate(manifest)
            print(manifest_id(manifest))
        else:
            pins = _read(options.workload_pins) if options.workload_pins else {}
            manifest = capture(options.project, pins)
            _write(options.out, manifest)
            print(json.dumps({"id": manifest_id(manifest), "fingerprint": fingerprint(manifest)}))
    except ManifestError as error:
        return _complain(str(error), _BAD_DATA)
    except _WriteError as error:
        return _complain(str(error), _CANNOT_CREATE)
    except OSError as error:
        return _complain(f"{error.filename}: {error.strerror}", _NO_INPUT)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m manifests", description="Environment manifests.")
    commands = parser.add_subparsers(dest="command", required=True, parser_class=_Parser)
    take = commands.add_parser("capture", help="write the manifest of this machine to a file")
    take.add_argument("--out", type=Path, required=True, metavar="FILE")
    take.add_argument("--project", type=Path, default=Path(), metavar="DIR", help="the checkout")
    take.add_argument(
        "--workload-pins", type=Path, metavar="FILE", help="JSON object: workload id to SHA-256"
    )
    name = commands.add_parser("id", help="print the id of a manifest file")
    name.add_argument("file", type=Path, metavar="FILE")
    return parser


def _read(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ManifestError(f"{path}: not JSON ({error}); write the file again") from None
    if not isinstance(document, dict):
        raise ManifestError(f"{path}: a JSON object is wanted, not {type(document).__name__}")
    return document


def _write(path: Path, manifest: dict[str, Any]) -> None:
    """All or nothing: a reader sees no file, the old file, or the whole new one."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with unfinished.open("w", encoding="utf-8") as file:
            json.dump(manifest, file, indent=1, sort_keys=True)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError as error:
        raise _WriteError(f"{path}: cannot write ({error.strerror}); name another --out") from None
    finally:
        unfinished.unlink(missing_ok=True)


def _complain(message: str, exit_code: int) -> int:
    print(f"manifests: error: {message}", file=sys.stderr)
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
