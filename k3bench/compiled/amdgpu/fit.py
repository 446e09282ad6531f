"""Fits the latency model on half of the published MI355X points and judges it on the other half.

    python -m k3bench.compiled.amdgpu.fit [--write]

published_mi355x.json holds times that others published of sglang's kernels, with their sources and
with what had to be assumed about each launch. The kernels are compiled here, so sglang must be
installed. The halves are chosen by a rule: of each kernel's points, in the file's order, every
second one is held out. The least sum of absolute log errors is sought, not of squares: compilers
differ between versions, and one kernel that another Triton compiled otherwise must not move the
constants of all. Every modelled time states the error over both halves, each judged with constants
from the other.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from importlib.resources import files
from itertools import combinations
from pathlib import Path
from typing import Any

import click

from k3bench.compiled.amdgpu.compiler import Request, compile_requests
from k3bench.compiled.amdgpu.evaluate import TimeModel, time_model, understood
from k3bench.compiled.amdgpu.model import CONSTANTS_FILE, LatencyModel
from k3bench.compiled.amdgpu.point import GpuPoint
from k3bench.compiled.amdgpu.sweep import FACTORY
from k3bench.compiled.amdgpu.targets import GFX950
from k3bench.compiled.errors import CompiledError

POINTS_FILE = "published_mi355x.json"

# Where the search begins: constants that others published for MI355X.
START = LatencyModel(latency_s=475e-9, near_latency_s=170e-9, launch_s=3e-6)
# Factors by which one constant at a time is moved, from coarse to fine.
_STEPS = (1.3, 1.1, 1.03, 1.01, 1.003)

# Pairs of launches of one kernel closer than this are too close for their order to mean anything.
DISTINCT = 0.10


@dataclass(frozen=True)
class Published:
    """One published time of one launch.

    Attributes:
        id: name, unique in the file.
        kernel: of the point's launches.
        group: points of one kernel whose launches may be ranked among one another.
        measured_s: published.
        point: what was launched.
        pool_tokens: of the cache, where the run's is known or assumed to be larger than the case's.
    """

    id: str
    kernel: str
    group: str
    measured_s: float
    point: GpuPoint
    pool_tokens: int | None = None

    @property
    def family(self) -> tuple[str, str]:
        """What the halves alternate within."""
        return self.kernel, self.point.implementation


def load_points(text: str) -> list[Published]:
    """The points of a file's text; CompiledError naming what is wrong."""
    try:
        points = [_point(document) for document in json.loads(text)["points"]]
    except (ValueError, KeyError, TypeError) as error:
        raise CompiledError(f"{POINTS_FILE}: {error!r}: not a file of published points") from error
    if len({point.id for point in points}) != len(points):
        raise CompiledError(f"{POINTS_FILE}: two points have the same id")
    if any(point.measured_s <= 0 for point in points):
        raise CompiledError(f"{POINTS_FILE}: measured_us of a point is not above 0")
    return points


def _point(document: Mapping[str, Any]) -> Published:
    shape = dict(document["point"])
    batch, context, prefix = (
        int(shape.pop(name, default)) for name, default in (("batch", 1), ("context", 1),
                                                            ("prefix", 0))
    )  # fmt: skip
    point = GpuPoint(
        lengths=(context,) * batch, prefix_lengths=(prefix,) * batch if prefix else (), **shape
    )
    return Published(
        id=document["id"],
        kernel=document["kernel"],
        group=f"{document['kernel']} {point.implementation} {context} B{batch}",
        measured_s=float(document["measured_us"]) / 1e6,
        point=point,
        pool_tokens=document.get("pool_tokens"),
    )


def halves(points: Sequence[Published]) -> tuple[list[Published], list[Published]]:
    """(fitted, held out): of each family, in order, every second point is held out."""
    seen: dict[tuple[str, str], int] = {}
    fitted: list[Published] = []
    held_out: list[Published] = []
    for point in points:
        number = seen.get(point.family, 0)
        seen[point.family] = number + 1
        (held_out if number % 2 else fitted).append(point)
    return fitted, held_out


def compiled(points: Sequence[Published]) -> dict[str, TimeModel]:
    """Each point's modelled seconds as a function of the constants, by id.

    Raises CompiledError where a kernel could not be compiled, with its reason.
    """
    described_for = {"target_arch": GFX950.arch, "target_compute_units": GFX950.compute_units}
    requests = [
        Request(FACTORY, {**p.point.to_json(), **described_for, "pool_tokens": p.pool_tokens})
        for p in points
    ]
    return {
        point.id: _prediction(point, answer)
        for point, answer in zip(points, compile_requests(requests, GFX950), strict=True)
    }


def _prediction(point: Published, answer: Mapping[str, Any]) -> TimeModel:
    if answer["status"] != "ok":
        raise CompiledError(f"{point.id}: {answer['detail']}")
    kernels = understood(answer["kernels"], GFX950, GFX950.compute_units)
    [kernel] = [found for found in kernels if found.answer["name"] == point.kernel]
    predict = time_model(kernel, GFX950, GFX950.compute_units)
    if predict is None:
        raise CompiledError(f"{point.id}: the loops of {GFX950.name} are not read")
    return predict


def loss(
    points: Sequence[Published], predict: Mapping[str, TimeModel], model: LatencyModel
) -> float:
    """Sum of |log(modelled / measured)|."""
    return sum(abs(math.log(predict[p.id](model) / p.measured_s)) for p in points)


def fit(points: Sequence[Published], predict: Mapping[str, TimeModel]) -> LatencyModel:
    """The constants with the least loss, by moving one at a time while that helps."""
    best, least = START, loss(points, predict, START)
    for step in _STEPS:
        moved = True
        while moved:
            moved = False
            for name, factor in ((n, f) for n in asdict(best) for f in (step, 1 / step)):
                tried = replace(best, **{name: getattr(best, name) * factor})
                found = loss(points, predict, tried)
                if found < least:
                    best, least, moved = tried, found, True
    return best


def errors(
    points: Sequence[Published], predict: Mapping[str, TimeModel], model: LatencyModel
) -> dict[str, float]:
    """modelled / measured - 1, by id."""
    return {point.id: predict[point.id](model) / point.measured_s - 1 for point in points}


def wrong_orders(
    points: Sequence[Published], predict: Mapping[str, TimeModel], model: LatencyModel
) -> Iterator[tuple[Published, Published]]:
    """Pairs of launches of one kernel at one shape that the model puts in the wrong order."""
    for pair in combinations(points, 2):
        low, high = sorted(pair, key=lambda point: point.measured_s)
        if low.group != high.group or high.measured_s < (1 + DISTINCT) * low.measured_s:
            continue
        if predict[low.id](model) >= predict[high.id](model):
            yield low, high


def report(points: Sequence[Published], predict: Mapping[str, TimeModel]) -> dict[str, Any]:
    """What latency_model.json holds: constants, their errors on either half, the stated error."""
    fitted, held_out = halves(points)
    model, swapped = fit(fitted, predict), fit(held_out, predict)
    judged = {
        **errors(held_out, predict, model),
        **errors(fitted, predict, swapped),
    }
    sizes = [abs(error) for error in judged.values()]
    means = {
        name: round(_mean(errors(half, predict, constants)), 4)
        for name, half, constants in (
            ("fitted", fitted, model),
            ("held out", held_out, model),
            ("swapped: fitted", held_out, swapped),
            ("swapped: held out", fitted, swapped),
        )
    }
    return {
        "how": "python -m k3bench.compiled.amdgpu.fit --write",
        "model": asdict(model),
        "swapped": asdict(swapped),
        "judged": {
            "gfx950": {"mean": round(sum(sizes) / len(sizes), 3), "worst": round(max(sizes), 3)}
        },
        "mean_errors": means,
        "errors": {point.id: round(judged[point.id], 3) for point in points},
        "held_out": [point.id for point in held_out],
        "wrong_orders": [[low.id, high.id] for low, high in wrong_orders(points, predict, model)],
    }


def _mean(found: Mapping[str, float]) -> float:
    return sum(map(abs, found.values())) / len(found)


@click.command()
@click.option("--write", is_flag=True, help=f"Write {CONSTANTS_FILE} beside this module.")
def main(write: bool) -> None:
    """Compile, fit, judge, report; exit code 65 where a point cannot be judged."""
    text = files("k3bench.compiled.amdgpu").joinpath(POINTS_FILE).read_text()
    try:
        points = load_points(text)
        found = report(points, compiled(points))
    except CompiledError as error:
        click.echo(f"k3bench: error: {error}", err=True)
        raise SystemExit(65) from error
    for name, off in found["errors"].items():
        half = "held out" if name in found["held_out"] else "fitted; judged with halves swapped"
        click.echo(f"{name:28s} {off:+7.1%}  {half}")
    for name, mean in found["mean_errors"].items():
        click.echo(f"mean error, {name}: {mean:.1%}")
    stated = found["judged"]["gfx950"]
    click.echo(f"stated: mean {stated['mean']:.1%}, worst {stated['worst']:.1%}")
    for name in ("model", "swapped"):
        click.echo(f"{name}: " + ", ".join(f"{k} {v:.3g}" for k, v in found[name].items()))
    click.echo(f"pairs over {DISTINCT:.0%} apart in wrong order: {len(found['wrong_orders'])}")
    if write:
        document = {**found, "points_sha256": sha256(text.encode()).hexdigest()}
        path = Path(__file__).with_name(CONSTANTS_FILE)
        path.write_text(json.dumps(document, indent=1) + "\n")
        click.echo(f"wrote {path.name}", err=True)


if __name__ == "__main__":
    main()
