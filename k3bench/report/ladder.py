"""What the ladder's report says, collected from the ledger: our rungs beside the published ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from k3bench.compiled.tpu.cost_model import CostModel, fitted_model, judged_errors
from k3bench.ledger import ResultRow, select_results
from k3bench.report.errors import ReportError

# The ladder's order, as published, and what goes on where the published one ends.
RUNGS = ("original", "mxu_port", "fused", "unified", "flat", "optimized", "dyadic")
TRACKED = "track_modelled_ms"
PUBLISHED_LADDER = "published.kda_prefill.ladder"
HEADLINE = "kda-headline"

Figures = Mapping[str, str | int | float | bool]


@dataclass(frozen=True)
class Rung:
    """One implementation at one workload.

    Attributes:
        implementation: its name.
        modelled_ms: by the cost model, from the compiler's schedule for v6e.
        published_ms: the published v6e median of the rung of that name; None where none is.
        compiled: the compiler's figures (cycles, slots, shares, spills, bytes).
        bounds_ms: lower bounds by resource.
        commit: the commit whose kernel was compiled.
    """

    implementation: str
    modelled_ms: float
    published_ms: float | None
    compiled: Figures
    bounds_ms: Mapping[str, float]
    commit: str


@dataclass(frozen=True)
class LadderReport:
    """Everything in the report, by workload id; the headline first.

    Attributes:
        workloads: workload id to its rungs, in the ladder's order.
        model: the cost model and its stated errors.
        errors: relative error of the model at each published point it was judged on.
        source: where the published figures come from.
        jax, libtpu: versions that compiled.
    """

    workloads: Mapping[str, Sequence[Rung]]
    model: CostModel
    errors: Mapping[str, float]
    source: str
    jax: str
    libtpu: str


def collect_ladder(session: Session) -> LadderReport:
    """The newest compiled and modelled rows of every rung, and the published ladder.

    Raises:
        ReportError: the ledger holds no modelled row of the headline, or no published ladder.
    """
    modelled = _newest(select_results(session, kind="modelled", benchmark=TRACKED, latest=True))
    compiled = _newest(select_results(session, kind="compiled", benchmark=TRACKED, latest=True))
    published_rows = select_results(session, kind="published", benchmark=PUBLISHED_LADDER)
    if not any(workload == HEADLINE for workload, _ in modelled):
        raise ReportError(
            "the ledger holds no modelled figures of the headline: "
            "run `asv run --bench compiled_kda HEAD^!` first"
        )
    if not published_rows:
        raise ReportError("the ledger holds no published ladder: run `k3bench ledger seed` first")
    published = {
        row.implementation: row.median_s * 1e3 for row in published_rows if row.median_s is not None
    }
    rungs: dict[str, list[Rung]] = {}
    for (workload, name), row in modelled.items():
        beside = compiled.get((workload, name))
        if row.median_s is None or beside is None or row.commit is None:
            continue
        rungs.setdefault(workload, []).append(
            Rung(
                implementation=name,
                modelled_ms=row.median_s * 1e3,
                published_ms=published.get(name) if workload == HEADLINE else None,
                compiled=beside.figures or {},
                bounds_ms=_bounds_ms(row.figures or {}),
                commit=row.commit,
            )
        )
    order = sorted(rungs, key=lambda workload: (workload != HEADLINE, workload))
    any_figures = rungs[HEADLINE][0].compiled
    return LadderReport(
        workloads={
            workload: sorted(rungs[workload], key=lambda rung: RUNGS.index(rung.implementation))
            for workload in order
        },
        model=fitted_model(),
        errors=judged_errors(),
        source=published_rows[0].source or "",
        jax=str(any_figures.get("jax")),
        libtpu=str(any_figures.get("libtpu")),
    )


def _newest(rows: Sequence[ResultRow]) -> dict[tuple[str, str], ResultRow]:
    newest: dict[tuple[str, str], ResultRow] = {}
    for row in sorted(rows, key=lambda row: row.started_at):
        if row.implementation in RUNGS:
            newest[row.workload_id, row.implementation] = row
    return newest


def _bounds_ms(figures: Figures) -> dict[str, float]:
    return {
        name.removeprefix("bound.").removesuffix("_s"): float(value) * 1e3
        for name, value in figures.items()
        if name.startswith("bound.")
    }
