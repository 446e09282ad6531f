"""What a record is: its fields and types, read strictly from JSON (docs/data-model.md).

Our own parser, not a JSON Schema: for a record of 20 samples jsonschema takes 290 us (measured) and
cannot compare a median with its samples; this (by way of ``quick``) and ``semantics`` take 15 us.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NoReturn

from k3bench.canonical import canonical_json
from k3bench.ledger.errors import LedgerError
from k3bench.ledger.models import CLOCKS, CORRECTNESS_STATUSES, KINDS, PRESETS
from k3bench.ledger.quick import QuickParser
from k3bench.ledger.series import series_key

Scalar = str | int | float | bool

_HEX_ID = re.compile(r"[0-9a-f]{32}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_MAX_INTEGER = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Correctness:
    """Whether the kernel's output was right, and against what."""

    status: str
    max_abs_error: float | None = None
    tolerance: float | None = None
    reference: str | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class WorkloadRef:
    """The workload's name and the SHA-256 of its lengths."""

    id: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Record:
    """One point's record. Times in seconds; ``started_at`` aware, UTC; keys as in the data model.

    Well-typed, but not yet checked for sense: that is ``semantics.check_sense``.
    """

    id: str
    benchmark: str
    parameters: Mapping[str, Scalar]
    implementation: str
    kind: str
    device: str
    clock: str | None
    preset: str | None
    warmup: int | None
    samples_s: tuple[float, ...]
    median_s: float | None
    p10_s: float | None
    p90_s: float | None
    n: int
    compile_s: float | None
    tokens: int | None
    padded_tokens: int | None
    tokens_per_s: float | None
    correctness: Correctness
    workload: WorkloadRef
    manifest_id: str | None
    commit: str | None
    started_at: datetime
    run_id: str | None
    source: str | None
    figures: Mapping[str, Scalar] | None

    @property
    def series(self) -> int:
        """The key of the series that the record belongs to."""
        return series_key(
            self.kind,
            self.benchmark,
            self.parameters,
            self.implementation,
            self.device,
            self.clock,
            self.preset,
            self.workload.id,
            self.workload.sha256,
        )

    def to_json(self) -> dict[str, Any]:
        """The record as plain JSON types, every key present; ``parse_record`` is its inverse."""
        document = {name: getattr(self, name) for name in RECORD_KEYS}
        document["parameters"] = dict(self.parameters)
        document["figures"] = None if self.figures is None else dict(self.figures)
        document["samples_s"] = list(self.samples_s)
        document["correctness"] = {
            name: getattr(self.correctness, name) for name in Correctness.__slots__
        }
        document["workload"] = {"id": self.workload.id, "sha256": self.workload.sha256}
        document["started_at"] = self.started_at.isoformat()
        return document

    def canonical(self) -> str:
        """One text per content: two records are the same if and only if their texts are."""
        return canonical_json(self.to_json())


RECORD_KEYS: tuple[str, ...] = Record.__slots__


class FieldError(ValueError):
    """A field's refusal, before anybody has said which record it is about."""


def fail(field: str, problem: str) -> NoReturn:
    """Refuse a field: what is wrong with it, and how to mend it."""
    raise FieldError(f"{field}: {problem}")


def _fits(value: str) -> bool:
    """Whether a string survives every database: no NUL (PostgreSQL), no lone surrogates (UTF-8)."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in value


def text(field: str, value: Any) -> str:
    """A non-empty string that every database can hold; refuses anything else."""
    if not isinstance(value, str):
        fail(field, f"expected a string, got {_shown(value)}")
    if not value:
        fail(field, "is empty: give it a name")
    if not _fits(value):
        fail(field, f"{_shown(value)} holds NUL or a lone surrogate: remove it")
    return value


def _matching(pattern: re.Pattern[str], what: str) -> Callable[[str, Any], str]:
    def parse(field: str, value: Any) -> str:
        if not isinstance(value, str) or pattern.fullmatch(value) is None:
            fail(field, f"expected {what}, got {_shown(value)}")
        return value

    return parse


def _one_of(allowed: tuple[str, ...]) -> Callable[[str, Any], str]:
    def parse(field: str, value: Any) -> str:
        if value not in allowed or not isinstance(value, str):
            fail(field, f"expected one of {', '.join(allowed)}, got {_shown(value)}")
        return value

    return parse


def _number(field: str, value: Any) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        fail(field, f"expected a number, got {_shown(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or number < 0:
        fail(field, f"expected a finite number >= 0, got {_shown(value)} (null if unknown)")
    return number


def _count(field: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MAX_INTEGER:
        fail(field, f"expected an integer from 0 to 2^63 - 1, got {_shown(value)}")
    return value


def _samples(field: str, value: Any) -> tuple[float, ...]:
    if not isinstance(value, (list, tuple)):
        fail(field, f"expected an array of seconds, got {_shown(value)}")
    # The common case without a Python call for every sample.
    if set(map(type, value)) <= {float} and all(map(math.isfinite, value)):
        samples = tuple(value)
    else:
        samples = tuple(_number(field, sample) for sample in value)
    if samples and min(samples) < 0.0:
        fail(field, f"holds {min(samples)}: a duration is positive")
    if 0.0 in samples:
        fail(field, "holds a sample of 0 s: the clock is too coarse, lengthen the sample")
    return samples


def utc_time(field: str, value: Any) -> datetime:
    """An ISO 8601 string with a zero offset as an aware datetime; refuses anything else."""
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        fail(field, f"expected an ISO 8601 time in UTC, got {_shown(value)}")
    if moment.utcoffset() is None or moment.utcoffset() != UTC.utcoffset(None):
        fail(field, f"{value} is not UTC: end it with Z or +00:00")
    return moment.astimezone(UTC)


def _parameters(field: str, value: Any) -> dict[str, Scalar]:
    if not isinstance(value, Mapping):
        fail(field, f"expected an object, got {_shown(value)}")
    for name, item in value.items():
        if not isinstance(name, str):
            fail(field, f"the name {_shown(name)} is not a string")
        if not isinstance(item, (str, int, float, bool)) or (
            isinstance(item, float) and not math.isfinite(item)
        ):
            fail(f"{field}.{name}", f"expected string, number or boolean: {_shown(item)}")
    return dict(value)


def _object(field: str, value: Any, required: tuple[str, ...], every: set[str]) -> None:
    if not isinstance(value, Mapping):
        fail(field, f"expected an object, got {_shown(value)}")
    for key in required:
        if key not in value:
            fail(f"{field}.{key}", "is missing")
    for key in value:
        if key not in every:
            fail(f"{field}.{key}", f"is no key of {field}: {', '.join(sorted(every))}")


def _correctness(field: str, value: Any) -> Correctness:
    _object(field, value, ("status",), set(Correctness.__slots__))

    def optional(parse: Callable[[str, Any], Any], key: str) -> Any:
        item = value.get(key)
        return None if item is None else parse(f"{field}.{key}", item)

    return Correctness(
        status=_one_of(CORRECTNESS_STATUSES)(f"{field}.status", value["status"]),
        max_abs_error=optional(_number, "max_abs_error"),
        tolerance=optional(_number, "tolerance"),
        reference=optional(text, "reference"),
        detail=optional(text, "detail"),
    )


def _workload(field: str, value: Any) -> WorkloadRef:
    _object(field, value, ("id", "sha256"), {"id", "sha256"})
    return WorkloadRef(
        id=text(f"{field}.id", value["id"]),
        sha256=_sha256(f"{field}.sha256", value["sha256"]),
    )


_sha256 = _matching(_SHA256, "64 lower-case hex digits")
_commit = _matching(_COMMIT, "a commit hash of 7 to 64 lower-case hex digits")

_PARSERS: dict[str, Callable[[str, Any], Any]] = {
    "id": _matching(_HEX_ID, "32 lower-case hex digits"),
    "benchmark": text,
    "parameters": _parameters,
    "implementation": text,
    "kind": _one_of(KINDS),
    "device": text,
    "clock": _one_of(CLOCKS),
    "preset": _one_of(PRESETS),
    "warmup": _count,
    "samples_s": _samples,
    "median_s": _number,
    "p10_s": _number,
    "p90_s": _number,
    "n": _count,
    "compile_s": _number,
    "tokens": _count,
    "padded_tokens": _count,
    "tokens_per_s": _number,
    "correctness": _correctness,
    "workload": _workload,
    "manifest_id": _sha256,
    "commit": _commit,
    "started_at": utc_time,
    "run_id": text,
    "source": text,
    "figures": _parameters,
}
_REQUIRED = frozenset(
    {"id", "benchmark", "parameters", "implementation", "kind", "device", "samples_s", "n"}
    | {"correctness", "workload", "started_at"}
)


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."


def label_of(document: Any, position: int) -> str:
    """How messages call a record: its place in the input, and its id and benchmark if any."""
    if not isinstance(document, Mapping):
        return f"record {position}"
    known = [str(document[key])[:80] for key in ("id", "benchmark") if document.get(key)]
    return f"record {position}" + (f" ({', '.join(known)})" if known else "")


def parse_record(document: Any, position: int = 0) -> Record:
    """A Record from its JSON object, or LedgerError naming record and field.

    Every key of the data model must be there, and nothing is coerced but integers where seconds
    are meant.
    """
    try:
        return parse_fields(document)
    except FieldError as error:
        raise LedgerError(f"{label_of(document, position)}: {error}") from None


_QUICK = QuickParser(
    RECORD_KEYS,
    kinds=KINDS,
    clocks=CLOCKS,
    presets=PRESETS,
    statuses=CORRECTNESS_STATUSES,
    correctness_keys=Correctness.__slots__,
)


def parse_fields(document: Any) -> Record:
    """As ``parse_record``, but raises FieldError, which names the field alone."""
    found = _QUICK.parse(document)
    if found is None:
        return parse_thoroughly(document)
    before, correctness, workload, after = found
    values = (*before, Correctness(*correctness), WorkloadRef(*workload), *after)
    return Record(*values)


def parse_thoroughly(document: Any) -> Record:
    """The parser itself: a function a field, each of which can say what is wrong."""
    if not isinstance(document, Mapping):
        raise FieldError(f"expected an object, got {_shown(document)}")
    if document.keys() != _PARSERS.keys():
        for key in RECORD_KEYS:
            if key not in document:
                fail(key, "is missing: write null where there is no value")
        unknown = sorted(str(key) for key in document.keys() - _PARSERS.keys())
        fail(unknown[0], "is no key of a record (see docs/data-model.md)")
    values: dict[str, Any] = {}
    for key, parse in _PARSERS.items():
        value = document[key]
        values[key] = None if value is None and key not in _REQUIRED else parse(key, value)
    return Record(**values)
