"""The quick way through the parser: well-formed records at a third of its cost, others not at all.

``record.parse_fields`` calls a function a field, each of which can say what is wrong. Nearly every
record is right; for those the same rules stand here once more as one expression. Whatever they do
not accept at once (an integer where seconds are meant, a name that is not ASCII, anything wrong)
is left to the parser, which has the last word. A test holds the two together.
"""

import math
import re
from datetime import UTC, datetime
from functools import lru_cache
from operator import itemgetter
from typing import Any

_HEX_ID = re.compile(r"[0-9a-f]{32}").fullmatch
_SHA256 = re.compile(r"[0-9a-f]{64}").fullmatch
_COMMIT = re.compile(r"[0-9a-f]{7,64}").fullmatch
_MAX_INTEGER = 2**63 - 1
_INFINITY = math.inf
_FLOAT = {float}
_STRING = {str}
_EXACT_SCALARS = {str, int, bool}

Values = tuple[Any, ...]


class QuickParser:
    """Takes a record's keys in their order, and what its words may be."""

    def __init__(
        self,
        keys: tuple[str, ...],
        *,
        kinds: tuple[str, ...],
        clocks: tuple[str, ...],
        presets: tuple[str, ...],
        statuses: tuple[str, ...],
        correctness_keys: tuple[str, ...],
    ) -> None:
        self._count = len(keys)
        self._values = itemgetter(*keys)
        self._kinds = frozenset(kinds)
        self._clocks = frozenset((None, *clocks))
        self._presets = frozenset((None, *presets))
        self._statuses = frozenset(statuses)
        self._correctness_keys = frozenset(correctness_keys)

    def parse(self, document: Any) -> tuple[Values, Values, Values, Values] | None:
        """Values in the order of the keys: those before correctness, its own, the workload's, and
        those after. None: ask the parser."""
        # As many keys, and every one of ours: the same keys, without a set being made.
        if type(document) is not dict or len(document) != self._count:
            return None
        try:
            values = self._values(document)
        except KeyError:
            return None
        (
            identity, benchmark, parameters, implementation, kind, device, clock, preset, warmup,
            samples, median, p10, p90, n, compile_s, tokens, padded_tokens, tokens_per_s,
            correctness, workload, manifest_id, commit, started_at, run_id, source, figures,
        ) = values  # fmt: skip
        if not (
            type(identity) is str and _HEX_ID(identity)
            and _is_name(benchmark) and _is_name(implementation) and _is_name(device)
            and type(kind) is str and kind in self._kinds
            and _is_word(clock) and clock in self._clocks
            and _is_word(preset) and preset in self._presets
            and type(n) is int and 0 <= n <= _MAX_INTEGER
            and _is_count(warmup) and _is_count(tokens) and _is_count(padded_tokens)
            and _is_seconds(median) and _is_seconds(p10) and _is_seconds(p90)
            and _is_seconds(compile_s) and _is_seconds(tokens_per_s)
            and (manifest_id is None or (type(manifest_id) is str and _SHA256(manifest_id)))
            and (commit is None or (type(commit) is str and _COMMIT(commit)))
            and (run_id is None or _is_name(run_id)) and (source is None or _is_name(source))
            and _are_scalars(parameters) and (figures is None or _are_scalars(figures))
            and type(samples) is list and (not samples or _are_durations(samples))
        ):  # fmt: skip
            return None
        verdict = self._correctness(correctness)
        place = _workload(workload)
        moment = _utc(started_at)
        if verdict is None or place is None or moment is None:
            return None
        return (
            (
                identity, benchmark, dict(parameters), implementation, kind, device, clock, preset,
                warmup, tuple(samples), median, p10, p90, n, compile_s, tokens, padded_tokens,
                tokens_per_s,
            ),
            verdict,
            place,
            (
                manifest_id, commit, moment, run_id, source,
                None if figures is None else dict(figures),
            ),
        )  # fmt: skip

    def _correctness(self, value: Any) -> Values | None:
        if type(value) is not dict or not value.keys() <= self._correctness_keys:
            return None
        get = value.get
        status, error, tolerance = get("status"), get("max_abs_error"), get("tolerance")
        reference, detail = get("reference"), get("detail")
        if (
            type(status) is str and status in self._statuses
            and _is_seconds(error) and _is_seconds(tolerance)
            and (reference is None or _is_name(reference)) and (detail is None or _is_name(detail))
        ):  # fmt: skip
            return status, error, tolerance, reference, detail
        return None


def _is_name(value: Any) -> bool:
    return type(value) is str and value.isascii() and value != "" and "\0" not in value


def _is_word(value: Any) -> bool:
    return value is None or type(value) is str


def _is_count(value: Any) -> bool:
    return value is None or (type(value) is int and 0 <= value <= _MAX_INTEGER)


def _is_seconds(value: Any) -> bool:
    return value is None or (type(value) is float and 0.0 <= value < _INFINITY)


def _are_durations(samples: list[Any]) -> bool:
    # Of positive numbers, a NaN or an infinity shows in the sum.
    return set(map(type, samples)) == _FLOAT and min(samples) > 0.0 and sum(samples) < _INFINITY


def _are_scalars(value: Any) -> bool:
    if type(value) is not dict or not set(map(type, value)) <= _STRING:
        return False
    types = set(map(type, value.values()))
    if types <= _EXACT_SCALARS:
        return True
    return types <= _EXACT_SCALARS | _FLOAT and all(
        math.isfinite(item) for item in value.values() if type(item) is float
    )


def _workload(value: Any) -> tuple[str, str] | None:
    if type(value) is not dict or len(value) != 2:
        return None
    identity, sha256 = value.get("id"), value.get("sha256")
    if _is_name(identity) and type(sha256) is str and _SHA256(sha256):
        return str(identity), sha256
    return None


def _utc(value: Any) -> datetime | None:
    return _moment(value) if type(value) is str else None


# Points that were measured together often have a time in common.
@lru_cache(maxsize=64)
def _moment(value: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return moment if moment.tzinfo is UTC else None
