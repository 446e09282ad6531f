"""What a measuring process looks at beside its samples: state, further clocks, dispatch floor."""

import json
from typing import Any

from k3bench.journal import RunJournal, write_durably
from k3bench.measure.backends import Backend
from k3bench.measure.clocks import further_clocks, wants_further_clocks
from k3bench.measure.floor import measure_floor
from k3bench.measure.point import Surroundings
from k3bench.measure.result import Summary, summarise
from k3bench.runner.conditions import MachineWatch, device_reader, torch_address


def surroundings_of(backend: Backend, preset: str, journal: RunJournal) -> Surroundings:
    """Everything for one point: the run's floor (measured by its first point) and fresh watches."""
    address = torch_address() if backend.platform in ("rocm", "cuda") else None
    return Surroundings(
        watch=MachineWatch(device=device_reader(backend.platform, address=address)),
        clocks=further_clocks(backend) if wants_further_clocks(preset) else (),
        figures=floor_figures(run_floor(backend, journal)),
    )


def run_floor(backend: Backend, journal: RunJournal) -> Summary:
    """A run's dispatch floor in seconds, measured once; its journal keeps the samples."""
    kind = type(backend).__name__.lower()
    path = journal.directory / f"floor-{backend.device}-{backend.clock}-{kind}.json"
    if not path.is_file():
        write_durably(path, json.dumps(measure_floor(backend).to_json()))
    kept: dict[str, Any] = json.loads(path.read_text())
    return summarise(kept["samples_s"])


def floor_figures(floor: Summary) -> dict[str, float]:
    """The floor as every record of the run carries it."""
    named = {
        "dispatch_floor_s": floor.median_s,
        "dispatch_floor_p10_s": floor.p10_s,
        "dispatch_floor_p90_s": floor.p90_s,
    }
    return {name: value for name, value in named.items() if value is not None}
