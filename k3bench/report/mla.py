"""What the MLA report says, collected from the ledger: ours and others' kernels on one scale."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

from sqlalchemy.orm import Session

from k3bench.compiled.amdgpu.fit import POINTS_FILE, load_points
from k3bench.compiled.amdgpu.model import fit_document
from k3bench.ledger import ResultRow, select_results
from k3bench.report.errors import ReportError

BENCHMARKS = "compiled_mla."
TRACKED = ".track_modelled_us"

Figures = Mapping[str, str | int | float | bool]


@dataclass(frozen=True)
class Launched:
    """One implementation at one shape.

    Attributes:
        shape: the benchmark's parameters, e.g. {"context": "64K", "B": 1}.
        implementation: its name.
        modelled_us: of all launches together.
        stage_us: of each launch, by name.
        compiled: the compiler's figures.
        bound_us: what no schedule can beat: bytes or FLOPs at peak rates.
        commit: the commit whose kernel was compiled.
    """

    shape: Mapping[str, str | int | float | bool]
    implementation: str
    modelled_us: float
    stage_us: Mapping[str, float]
    compiled: Figures
    bound_us: float
    commit: str

    @property
    def hbm_bytes_per_s(self) -> float:
        """Bytes that the launches must move, over the modelled time."""
        return float(self.compiled["hbm_bytes"]) / (self.modelled_us * 1e-6)


@dataclass(frozen=True)
class PublishedPoint:
    """A published time of one launch beside what the model says of it.

    Attributes:
        id: name.
        measured_us: as published.
        error: modelled / published - 1, with constants from the half that it is not in.
        held_out: whether the committed constants were fitted without it.
    """

    id: str
    measured_us: float
    error: float
    held_out: bool


@dataclass(frozen=True)
class MlaReport:
    """Everything in the report.

    Attributes:
        decode: over contexts, batch 1 first.
        cliff: over split counts at 68K.
        last_chunk: the last chunk of a prompt after its prefix, by form.
        kda_decode: over batch.
        published: the points that the model was fitted and judged on.
        mean_errors: mean |error| by half, "fitted", "held out" and both swapped.
        stated: {"mean", "worst"}, beside every modelled time.
        sources: of the published times, by name.
        triton: version that compiled.
    """

    decode: Sequence[Launched]
    cliff: Sequence[Launched]
    last_chunk: Sequence[Launched]
    kda_decode: Sequence[Launched]
    published: Sequence[PublishedPoint]
    mean_errors: Mapping[str, float]
    stated: Mapping[str, float]
    sources: Mapping[str, str]
    triton: str


def collect_mla(session: Session) -> MlaReport:
    """The newest compiled and modelled rows of every MLA kernel, and the model's judgement.

    Raises:
        ReportError: the ledger holds no modelled MLA decode.
    """
    decode = _launched(session, "Decode")
    if not decode:
        raise ReportError(
            "the ledger holds no modelled figures of MLA decode: "
            "run `asv run --bench compiled_mla HEAD^!` first"
        )
    document = fit_document()
    published = files("k3bench.compiled.amdgpu").joinpath(POINTS_FILE).read_text()
    return MlaReport(
        decode=decode,
        cliff=_launched(session, "DecodeAt68K"),
        last_chunk=_launched(session, "LastChunk"),
        kda_decode=_launched(session, "KdaDecode"),
        published=[
            PublishedPoint(
                id=point.id,
                measured_us=point.measured_s * 1e6,
                error=document["errors"][point.id],
                held_out=point.id in document["held_out"],
            )
            for point in load_points(published)
        ],
        mean_errors=document["mean_errors"],
        stated=document["judged"]["gfx950"],
        sources=json.loads(published)["sources"],
        triton=str(decode[0].compiled["triton"]),
    )


def _launched(session: Session, benchmark: str) -> list[Launched]:
    name = f"{BENCHMARKS}{benchmark}{TRACKED}"
    modelled = _newest(select_results(session, kind="modelled", benchmark=name, latest=True))
    compiled = _newest(select_results(session, kind="compiled", benchmark=name, latest=True))
    found = []
    for key, row in modelled.items():
        beside = compiled.get(key)
        if row.median_s is None or beside is None or row.commit is None:
            continue
        figures = row.figures or {}
        found.append(
            Launched(
                shape=row.parameters,
                implementation=row.implementation,
                modelled_us=row.median_s * 1e6,
                stage_us={
                    figure.removesuffix(".modelled_us"): float(value)
                    for figure, value in figures.items()
                    if figure.endswith(".modelled_us")
                },
                compiled=beside.figures or {},
                bound_us=float(figures["bound.roofline_s"]) * 1e6,
                commit=row.commit,
            )
        )
    return sorted(found, key=lambda item: (item.compiled["hbm_bytes"], item.implementation))


def _newest(rows: Sequence[ResultRow]) -> dict[tuple[str, str, str], ResultRow]:
    newest: dict[tuple[str, str, str], ResultRow] = {}
    for row in sorted(rows, key=lambda row: row.started_at):
        newest[row.workload_id, str(sorted(row.parameters.items())), row.implementation] = row
    return newest
