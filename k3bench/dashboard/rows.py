"""Reading the ledger for the pages: series by series, without building an object a value.

A site of a million points reads every row once. The public queries give whole rows with parsed
parameters and times; here a series' parameters are parsed once and its columns stay columns.
"""

import base64
import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from operator import itemgetter
from typing import Any

from sqlalchemy import LargeBinary, Text, func, select, type_coerce
from sqlalchemy.orm import Session

from k3bench.ledger.models import Manifest, Result, Samples

# What makes rows the same series: all but when, at which commit and where they were made.
_SERIES = (
    "kind", "benchmark", "parameters", "implementation", "device", "clock", "preset",
    "workload_id", "workload_sha256",
)  # fmt: skip
COLUMNS = (
    "id", "commit", "started_at", "median_s", "p10_s", "p90_s", "n", "tokens", "padded_tokens",
    "tokens_per_s", "warmup", "compile_s", "correctness_status", "max_abs_error", "tolerance",
    "correctness_reference", "correctness_detail", "manifest_id", "run_id", "source", "figures",
)  # fmt: skip
_STARTED_AT = COLUMNS.index("started_at")
_IDS_A_QUERY = 500


@dataclass(frozen=True)
class View:
    """Rows that may share a figure: one kind, device, clock and preset."""

    kind: str
    device: str
    clock: str | None
    preset: str | None


@dataclass(frozen=True)
class Series:
    """One point of the suite over all commits.

    ``rows`` hold COLUMNS in order, oldest first; ``figures`` in them is JSON text or None.
    """

    view: View
    benchmark: str
    parameters: dict[str, Any]
    implementation: str
    workload_id: str
    workload_sha256: str
    rows: list[tuple[Any, ...]]

    def column(self, name: str) -> list[Any]:
        """One of COLUMNS, oldest row first."""
        return list(map(itemgetter(COLUMNS.index(name)), self.rows))


def first_results(session: Session) -> dict[str, datetime]:
    """Every commit that results name, with the time of its first result."""
    query = (
        select(Result.commit, func.min(Result.started_at))
        .where(Result.commit.is_not(None))
        .group_by(Result.commit)
    )
    return {commit: moment for commit, moment in session.execute(query) if commit is not None}


def benchmark_names(session: Session) -> list[str]:
    """Every benchmark that the ledger has results of."""
    return sorted(session.scalars(select(Result.benchmark).distinct()))


def read_series(session: Session, benchmark: str) -> Iterator[Series]:
    """Every series of a benchmark, in an order that does not depend on the database."""
    # As text: parameters are parsed once a series, figures not at all.
    plain = {name: getattr(Result, name) for name in (*_SERIES, *COLUMNS)}
    plain["parameters"] = type_coerce(Result.parameters, Text)
    plain["figures"] = type_coerce(Result.figures, Text)
    query = select(*plain.values()).where(Result.benchmark == benchmark)
    keys = len(_SERIES)
    found: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    for row in session.execute(query.execution_options(yield_per=5000)):
        found.setdefault(tuple(row[:keys]), []).append(tuple(row[keys:]))
    for key in sorted(found, key=repr):
        kind, _, parameters, implementation, device, clock, preset, workload_id, sha256 = key
        yield Series(
            View(kind, device, clock, preset),
            benchmark,
            json.loads(parameters),
            implementation,
            workload_id,
            sha256,
            sorted(found[key], key=itemgetter(_STARTED_AT, 0)),
        )


def read_samples(session: Session, result_ids: Collection[str]) -> dict[str, str]:
    """Samples by result id, as base64 of little-endian float64: bit-exact, and short."""
    ids = list(result_ids)
    found: dict[str, str] = {}
    for start in range(0, len(ids), _IDS_A_QUERY):
        # As bytes: the ledger keeps samples packed just so.
        packed = type_coerce(Samples.values_s, LargeBinary)
        some = ids[start : start + _IDS_A_QUERY]
        query = select(Samples.result_id, packed).where(Samples.result_id.in_(some))
        for identity, values in session.execute(query):
            found[identity] = base64.b64encode(values).decode("ascii")
    return found


def read_manifests(session: Session) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every manifest that a result names, by id."""
    query = select(Manifest.id, Manifest.document).order_by(Manifest.captured_at, Manifest.id)
    rows = session.execute(query.execution_options(yield_per=100))
    return ((identity, document) for identity, document in rows)
