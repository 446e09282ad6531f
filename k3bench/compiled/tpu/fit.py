"""Fits the cost model on one half of the published points and judges it on the other.

    python -m k3bench.compiled.tpu.fit POINTS.json [--write]

POINTS.json holds compiler figures of the public kernels beside their published v6e medians. The
halves are chosen by a rule: a point is fitted where the SHA-256 of its id is an even number. One
half of so few points is a draw, so the error that every modelled time states is the one over both
halves, each judged with constants from the other.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from itertools import combinations
from pathlib import Path
from typing import Any

import click
import numpy as np

from k3bench.compiled.errors import CompiledError
from k3bench.compiled.tpu.cost_model import CONSTANTS_FILE, CostModel, Work
from k3bench.compiled.tpu.targets import V6E

# Pairs at one shape closer than this are too close for their order to mean anything.
DISTINCT = 0.10


@dataclass(frozen=True)
class PublishedPoint:
    """One public kernel at one shape: the compiler's figures and the published median."""

    implementation: str
    shape: str
    heads: int
    measured_s: float
    kernel_cycles: int
    xla_cycles: int
    xla_ops: int
    xla_hbm_bytes: int

    @property
    def id(self) -> str:
        """What the halves are chosen by."""
        return f"{self.implementation}/{self.shape}"


def load_points(path: Path) -> list[PublishedPoint]:
    """The points of a file; CompiledError naming the field that is wrong."""
    try:
        documents = json.loads(path.read_text())["points"]
        points = [_point(document) for document in documents]
    except OSError as error:
        raise CompiledError(f"{path.name}: {error.strerror}: name a file of points") from error
    except (ValueError, KeyError, TypeError) as error:
        raise CompiledError(f"{path.name}: {error!r}: not a file of compiled points") from error
    if len({point.id for point in points}) != len(points):
        raise CompiledError(f"{path.name}: two points have the same id")
    return points


def _point(document: Mapping[str, Any]) -> PublishedPoint:
    return PublishedPoint(
        implementation=document["implementation"],
        shape=document["shape"],
        heads=int(document["heads"]),
        measured_s=float(document["measured_ms"]) / 1e3,
        kernel_cycles=int(document["mosaic_cycles"]),
        xla_cycles=int(document["xla_bundle_cycles"]),
        xla_ops=int(document["xla_ops"]),
        xla_hbm_bytes=int(document["xla_hbm_bytes"]),
    )


def halves(
    points: Sequence[PublishedPoint],
) -> tuple[list[PublishedPoint], list[PublishedPoint]]:
    """(fitted, judged), by the rule above."""
    chosen = {
        point.id for point in points if int(sha256(point.id.encode()).hexdigest(), 16) % 2 == 0
    }
    return (
        [point for point in points if point.id in chosen],
        [point for point in points if point.id not in chosen],
    )


def predict(point: PublishedPoint, model: CostModel) -> float:
    """Modelled seconds of a point. Its kernels' HBM bytes are not known: taken as overlapped."""
    kernels = [Work(point.kernel_cycles, 0)]
    return model.seconds(kernels, [Work(point.xla_cycles, point.xla_hbm_bytes)], V6E) + (
        (point.xla_ops - 1) * model.op_s
    )


def fit(points: Sequence[PublishedPoint]) -> CostModel:
    """The constants with the least squared relative error; the errors are not yet judged."""
    measured = np.array([point.measured_s for point in points])
    nothing = CostModel(0.0, 0.0, 0.0, 0.0, 0, 0)
    fixed = np.array([predict(point, nothing) for point in points])
    design = np.array([(1.0, point.xla_ops) for point in points]) / measured[:, None]
    (launch_s, op_s), *_ = np.linalg.lstsq(design, 1.0 - fixed / measured, rcond=None)
    if launch_s <= 0 or op_s <= 0:
        raise CompiledError(
            f"the fit gave launch {launch_s:.3g} s and op {op_s:.3g} s: both are costs, so these "
            "points do not carry the model"
        )
    return CostModel(float(launch_s), float(op_s), 0.0, 0.0, len(points), 0)


def relative_errors(points: Sequence[PublishedPoint], model: CostModel) -> dict[str, float]:
    """modelled / measured - 1, by point id."""
    return {point.id: predict(point, model) / point.measured_s - 1.0 for point in points}


def wrong_orders(
    points: Sequence[PublishedPoint], model: CostModel
) -> Iterator[tuple[PublishedPoint, PublishedPoint]]:
    """Pairs of implementations at one shape, over 10% apart, that the model puts in wrong order."""
    for a, b in combinations(points, 2):
        if (a.shape, a.heads) != (b.shape, b.heads):
            continue
        low, high = sorted((a, b), key=lambda point: point.measured_s)
        if high.measured_s > (1 + DISTINCT) * low.measured_s and predict(low, model) >= predict(
            high, model
        ):
            yield low, high


def judged_errors(points: Sequence[PublishedPoint]) -> dict[str, float]:
    """Relative error of every point, each judged with constants from the half it is not in."""
    first, second = halves(points)
    return {**relative_errors(second, fit(first)), **relative_errors(first, fit(second))}


def judged_model(points: Sequence[PublishedPoint]) -> CostModel:
    """Fitted on one half; its errors over both, each judged with constants from the other."""
    errors = np.abs(list(judged_errors(points).values()))
    return replace(
        fit(halves(points)[0]),
        mean_error=float(errors.mean()),
        worst_error=float(errors.max()),
        judged_on=len(errors),
    )


@click.command()
@click.argument("points_file", type=click.Path(path_type=Path))
@click.option("--write", is_flag=True, help=f"Write {CONSTANTS_FILE} beside this module.")
def main(points_file: Path, write: bool) -> None:
    """Fit, judge, report; exit code 65 for a malformed file."""
    try:
        points = load_points(points_file)
        model = judged_model(points)
    except CompiledError as error:
        click.echo(f"k3bench: error: {error}", err=True)
        raise SystemExit(65) from error
    fitted, judged = halves(points)
    for name, half, constants in (
        ("fitted", fitted, model),
        ("not fitted", judged, model),
        ("halves swapped, not fitted", fitted, fit(judged)),
    ):
        errors = relative_errors(half, constants)
        sizes = np.abs(list(errors.values()))
        worst = max(errors, key=lambda key: abs(errors[key]))
        click.echo(
            f"{name}: {len(half)} points, mean error {sizes.mean():.2%}, "
            f"worst {errors[worst]:+.1%} ({worst})"
        )
    wrong = list(wrong_orders(points, model))
    click.echo(f"stated: mean {model.mean_error:.2%}, worst {model.worst_error:.1%}")
    click.echo(f"launch {model.launch_s * 1e6:.1f} us, XLA op {model.op_s * 1e6:.3f} us")
    click.echo(f"pairs over {DISTINCT:.0%} apart in wrong order: {len(wrong)}")
    for low, high in wrong:
        click.echo(f"  {low.id} and {high.id}")
    if write:
        document = {
            "how": "python -m k3bench.compiled.tpu.fit POINTS.json --write",
            "points_sha256": sha256(points_file.read_bytes()).hexdigest(),
            "model": asdict(model),
            "errors": dict(sorted(judged_errors(points).items())),
        }
        path = Path(__file__).with_name(CONSTANTS_FILE)
        path.write_text(json.dumps(document, indent=1) + "\n")
        click.echo(f"wrote {path.name}", err=True)


if __name__ == "__main__":
    main()
