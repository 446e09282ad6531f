"""Noise of runs in turns that was recorded: `k3bench ab` of two commits with the same kernels.

    python -m k3bench.gate.recorded_turns LEDGER

writes recorded_turns.json beside this file from a ledger that holds several such runs. Residuals
are logarithms of sample over the point's median over all runs of both sides, in units of 1e-4: what
lies between base and head of one run is kept, for that is the noise which their comparison meets.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from k3bench.gate.errors import GateError
from k3bench.gate.recorded import UNIT, complete_runs, in_units, provenance_of
from k3bench.gate.select import Array, Point, Row, Side, select_side
from k3bench.ledger import open_ledger
from k3bench.ledger.models import Result

FILE = "recorded_turns.json"


@dataclass(frozen=True)
class TurnsRecording:
    """A/A runs of `k3bench ab` under one setting.

    ``residuals``: runs x points x 2 (base, head) x samples, logarithms, in the order recorded;
    sample i of both sides is of one round.
    """

    provenance: Mapping[str, Any]
    residuals: Array

    @property
    def points(self) -> list[Point]:
        """As they were measured, process by process."""
        given = self.provenance
        return [
            Point(
                "measured",
                given["device"],
                given["preset"],
                group["benchmark"],
                json.dumps(group["parameters"], sort_keys=True),
                name,
            )
            for group in given["groups"]
            for name in group["implementations"]
        ]

    @property
    def processes(self) -> list[NDArray[np.intp]]:
        """Which points one process measured: its implementations took turns, on both sides."""
        sizes = [len(group["implementations"]) for group in self.provenance["groups"]]
        return np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])

    @property
    def spread(self) -> Array:
        """Per point, the spread of a side's samples within a run, as a standard deviation.

        From the deciles, which outliers do not move; the median over runs and sides.
        """
        low, high = np.quantile(self.residuals, [0.1, 0.9], axis=3)
        return np.asarray(np.median((high - low) / 2.563, axis=(0, 2)))

    @property
    def between_sides(self) -> Array:
        """Runs x points: the median of head's logarithms over base's, pair by pair."""
        return np.asarray(np.median(self.residuals[:, :, 1] - self.residuals[:, :, 0], axis=2))


def load_turns() -> TurnsRecording:
    """The recording that comes with the package."""
    document = json.loads(resources.files("k3bench.gate").joinpath(FILE).read_text("utf-8"))
    residuals = np.array(document["residuals"], dtype=np.float64) * document["unit"]
    return TurnsRecording(document["provenance"], residuals)


def turns_from(session: Session) -> dict[str, Any]:
    """The JSON object of a recording: every complete run of the pair that took turns most often.

    Base is the commit whose points were prepared first, as `k3bench ab` does. That both have the
    same kernels is for the caller to know.
    """
    side = select_side(session, "the ledger", [Result.kind == "measured"])
    pairs = Counter(
        tuple(sorted((str(row.commit), row.in_turns_with)))
        for rows in side.values()
        for row in rows
        if row.in_turns_with is not None
    )
    if not pairs:
        raise GateError("the ledger holds no run in turns: `k3bench ab` makes them")
    ((one, other), _), *_ = pairs.most_common(1)
    # Every run holds both commits, so a side is selected by its own.
    sides = [
        _taking_turns(
            select_side(session, mine, [Result.kind == "measured", Result.commit == mine]), theirs
        )
        for mine, theirs in ((one, other), (other, one))
    ]
    base, head = sorted(sides, key=lambda rows: min(row.started_at for row in _rows(rows)))
    runs, groups = complete_runs(base)
    if complete_runs(head) != (runs, groups):
        raise GateError("base and head do not have the same points in the same runs")
    logs: Array = np.log(
        np.array(
            [
                [
                    [_samples(held[point], run) for held in (base, head)]
                    for point in _in_groups(base, groups)
                ]
                for run in runs
            ]
        )
    )
    (commit,) = {str(row.commit) for row in _rows(base)}
    (against,) = {str(row.commit) for row in _rows(head)}
    provenance = provenance_of(session, base, runs, groups, commit)
    return {
        "unit": UNIT,
        "provenance": {**provenance, "in_turns_with": against},
        "residuals": in_units(logs - np.median(logs, axis=(0, 2, 3), keepdims=True)).tolist(),
    }


def _taking_turns(side: Side, other: str) -> Side:
    kept = {
        point: [row for row in rows if row.in_turns_with == other]
        for point, rows in side.items()
        if point.further_clock is None
    }
    return {point: rows for point, rows in kept.items() if rows}


def _rows(side: Side) -> list[Row]:
    return [row for rows in side.values() for row in rows]


def _in_groups(side: Side, groups: Mapping[tuple[str, str], Sequence[str]]) -> list[Point]:
    named = {(p.benchmark, p.parameters, p.implementation): p for p in side}
    return [named[*group, name] for group, names in groups.items() for name in names]


def _samples(rows: Sequence[Row], run: str) -> Array:
    (found,) = (row.samples_s for row in rows if row.run_id == run)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file; 0, or 1 with a line that says what is missing."""
    parser = argparse.ArgumentParser(
        prog="python -m k3bench.gate.recorded_turns", description=__doc__
    )
    parser.add_argument("ledger", metavar="LEDGER")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name(FILE))
    given = parser.parse_args(arguments)
    try:
        with open_ledger(given.ledger, create=False) as ledger, ledger.session() as session:
            document = turns_from(session)
    except ValueError as error:
        print(f"recorded turns: {error}", file=sys.stderr)
        return 1
    given.out.write_text(json.dumps(document, separators=(",", ":")) + "\n")
    print(f"{document['provenance']['runs']} runs, {len(document['residuals'][0])} points")
    return 0


if __name__ == "__main__":
    sys.exit(main())
