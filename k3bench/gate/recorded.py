"""Noise that was recorded: A/A runs of one commit, kept as residuals, and how they are made.

    python -m k3bench.gate.recorded LEDGER=NAME [LEDGER=NAME ...]

writes recorded_noise.json beside this file from ledgers that hold many runs of one commit. A block
is what one process measured: the implementations of a point, in turns. Residuals are logarithms of
sample over the point's median over all runs, in units of 1e-4. No absolute time, name of a machine
or path is kept.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import distinct, func, select
from sqlalchemy.orm import Session

from k3bench.gate.errors import GateError
from k3bench.gate.select import Array, Side, of_commit, select_side
from k3bench.ledger import load_manifest, open_ledger
from k3bench.ledger.models import Result

FILE = "recorded_noise.json"
UNIT = 1e-4
_KEPT_OF_CPU = ("model", "family", "model_number", "stepping", "cores", "threads", "hypervisor")
# Three decimals of a per cent are far below any noise; larger is clipped at e^3 = 20 times.
_LARGEST = 30_000
# (benchmark, parameters) of what one process measured, and its implementations.
Groups = dict[tuple[str, str], tuple[str, ...]]


@dataclass(frozen=True)
class Recording:
    """A/A runs under one setting.

    ``residuals``: runs x groups x implementations x samples, logarithms, in the order recorded.
    """

    name: str
    provenance: Mapping[str, Any]
    residuals: Array

    @property
    def spread(self) -> Array:
        """Groups x implementations: spread of the samples within a run, as a standard deviation.

        From the deciles, which outliers do not move; the median over runs.
        """
        low, high = np.quantile(self.residuals, [0.1, 0.9], axis=3)
        return np.asarray(np.median((high - low) / 2.563, axis=0))

    @property
    def between_runs(self) -> Array:
        """Groups x implementations: standard deviation of the log median between runs."""
        return np.asarray(np.median(self.residuals, axis=3).std(axis=0, ddof=1))


def load_recordings() -> list[Recording]:
    """The recordings that come with the package."""
    text = resources.files("k3bench.gate").joinpath(FILE).read_text("utf-8")
    document = json.loads(text)
    return [
        Recording(
            name=item["name"],
            provenance=item["provenance"],
            residuals=np.array(item["residuals"], dtype=np.float64) * document["unit"],
        )
        for item in document["recordings"]
    ]


def recording_from(session: Session, name: str) -> dict[str, Any]:
    """The JSON object of a recording: every complete run of the ledger's most measured commit."""
    commit = session.scalar(
        select(Result.commit)
        .where(Result.kind == "measured")
        .group_by(Result.commit)
        .order_by(func.count(distinct(Result.run_id)).desc())
        .limit(1)
    )
    if commit is None:
        raise GateError(f"{name}: the ledger holds no measured results")
    side = select_side(session, name, [*of_commit(commit), Result.kind == "measured"])
    runs, groups = complete_runs(side)
    logs = _logarithms(side, runs, groups)
    units = in_units(logs - np.median(logs, axis=(0, 3), keepdims=True))
    return {
        "name": name,
        "provenance": provenance_of(session, side, runs, groups, commit),
        "residuals": units.tolist(),
    }


def provenance_of(
    session: Session, side: Side, runs: Sequence[str], groups: Groups, commit: str
) -> dict[str, Any]:
    """Where and when a side was recorded: JSON types, no place's or person's name among them."""
    rows = [row for rows in side.values() for row in rows if row.run_id in runs]
    first = next(iter(side))
    manifest = load_manifest(session, str(rows[0].manifest_id))
    environment = manifest["environment"]
    return {
        "device": first.device,
        "cpu": {key: environment["cpu"].get(key) for key in _KEPT_OF_CPU},
        "variables": environment["variables"],
        "preset": first.preset,
        "clock": rows[0].clock,
        "samples": len(rows[0].samples_s),
        "runs": len(runs),
        "commit": commit,
        "from": min(row.started_at for row in rows).isoformat(timespec="seconds"),
        "to": max(row.started_at for row in rows).isoformat(timespec="seconds"),
        "groups": [
            {
                "benchmark": benchmark,
                "parameters": json.loads(parameters),
                "implementations": list(implementations),
            }
            for (benchmark, parameters), implementations in groups.items()
        ],
    }


def complete_runs(side: Side) -> tuple[list[str], Groups]:
    """Runs that have every point, the oldest first, and the points by group."""
    groups: Groups = {}
    order: dict[str, None] = {}
    for point in sorted(side, key=lambda point: (point.benchmark, point.parameters)):
        key = (point.benchmark, point.parameters)
        groups[key] = tuple(sorted((*groups.get(key, ()), point.implementation)))
    for rows in side.values():
        order.update(dict.fromkeys(row.run_id for row in rows if row.run_id is not None))
    held = [{row.run_id for row in rows if len(row.samples_s)} for rows in side.values()]
    runs = [run for run in order if all(run in some for some in held)]
    if len(runs) < 2:
        raise GateError("fewer than two complete runs of one commit: record more")
    return runs, groups


def in_units(residuals: Array) -> NDArray[np.intp]:
    """Residuals as the files hold them."""
    return np.clip(np.rint(residuals / UNIT), -_LARGEST, _LARGEST).astype(np.intp)


def _logarithms(
    side: Side, runs: Sequence[str], groups: Mapping[tuple[str, str], Sequence[str]]
) -> Array:
    by_name = {
        (point.benchmark, point.parameters, point.implementation): {
            row.run_id: row.samples_s for row in rows
        }
        for point, rows in side.items()
    }
    logs: Array = np.log(
        np.array(
            [
                [[by_name[*group, name][run] for name in names] for group, names in groups.items()]
                for run in runs
            ]
        )
    )
    return logs


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file; 0, or 1 with a line that says what is missing."""
    parser = argparse.ArgumentParser(prog="python -m k3bench.gate.recorded", description=__doc__)
    parser.add_argument("ledgers", nargs="+", metavar="LEDGER=NAME")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name(FILE))
    given = parser.parse_args(arguments)
    recordings = []
    try:
        for item in given.ledgers:
            url, _, name = item.rpartition("=")
            with open_ledger(url, create=False) as ledger, ledger.session() as session:
                recordings.append(recording_from(session, name))
    except ValueError as error:
        print(f"recorded noise: {error}", file=sys.stderr)
        return 1
    document = {"unit": UNIT, "recordings": recordings}
    given.out.write_text(json.dumps(document, separators=(",", ":")) + "\n")
    for recording in recordings:
        print(f"{recording['name']}: {recording['provenance']['runs']} runs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
