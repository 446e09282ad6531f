"""Is a document a manifest? The schema says, and the error names the field."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from manifests.canonical import canonical_json
from manifests.errors import ManifestError

SCHEMA_VERSION = 1
_SCHEMA_FILE = Path(__file__).with_name("schema.json")
_MEND = "capture a new one with `python -m manifests capture --out FILE`"


def validate(manifest: Any) -> None:
    """Returns for a valid manifest; raises ManifestError with one line that names the first field.

    Checked against schema.json (JSON Schema, draft 2020-12). The schema also refuses any text that
    is an absolute path.
    """
    if not isinstance(manifest, Mapping):
        raise ManifestError(
            f"manifest: an object is wanted, not {type(manifest).__name__}; {_MEND}"
        )
    version = manifest.get("schema_version", "absent")
    if version != SCHEMA_VERSION or isinstance(version, bool):
        raise ManifestError(
            f"manifest: schema_version is {version}, this code reads {SCHEMA_VERSION}; {_MEND}"
        )
    # The schema's numbers admit NaN, which no JSON file can hold.
    document = json.loads(canonical_json(manifest))
    errors = sorted(
        _validator().iter_errors(document), key=lambda error: list(map(str, error.path))
    )
    if errors:
        field = _field(errors[0].absolute_path)
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise ManifestError(f"manifest: {field}: {_short(errors[0])}{more}; {_MEND}")


@cache
def _validator() -> Any:
    # Imported here: ids and differences of manifests need no schema, and it costs 0.1 s.
    from jsonschema import Draft202012Validator

    return Draft202012Validator(json.loads(_SCHEMA_FILE.read_text(encoding="utf-8")))


def _field(path: Any) -> str:
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else str(step)
    return text or "the document"


def _short(error: Any) -> str:
    if error.validator == "not":
        return f"{error.instance!r} is an absolute path, which belongs to one machine alone"
    message = " ".join(str(error.message).split())
    return message if len(message) <= 160 else message[:157] + "..."
