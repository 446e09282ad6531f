"""Further clocks through a whole asv run: asv gets the point's own, the ledger gets both."""

from pathlib import Path

from harness.asv_project import ToyProject

CLOCK = """
from k3bench.measure import clocks
from k3bench.runner import surroundings


class Halved:
    name, clock, parameters, notes = "graph", "device", {"launch": "graph"}, {"calls_per_graph": 10}

    def time_all(self, calls, checks, counts, before_call, order):
        return clocks.Timed({name: (4321.0625,) * counts.repeat for name in calls})


surroundings.further_clocks = lambda backend: (Halved(),)
"""


def test_a_further_clock_s_records_are_in_the_ledger_and_never_given_to_asv(tmp_path: Path) -> None:
    project = ToyProject.create(tmp_path)
    init = project.root / "benchmarks" / "__init__.py"
    init.write_text(init.read_text() + CLOCK)
    output = project.asv("run", "--bench", r"\(1, '(fast|slow)'", K3BENCH_CLOCKS="all")
    assert "4 points in the ledger (4 ok)" in output
    rows = project.results("--kind", "measured")
    further = [row for row in rows if row["clock"] == "device"]
    own = [row for row in rows if row["clock"] == "wall"]
    assert [row["parameters"] for row in further] == [{"point": 1, "launch": "graph"}] * 2
    assert {row["median_s"] for row in further} == {4321.0625}
    assert all("dispatch_floor_s" in row["figures"] for row in own)
    # asv's own result file holds the point's clock, and nothing is left to resume.
    (results,) = (project.root / ".asv" / "results").glob("*/*-provisioned-*.json")
    assert "4321.0625" not in results.read_text()
    assert not list((project.root / ".k3bench" / "runs").iterdir())
    assert len(project.results("--kind", "measured")) == 4

    project.asv("run", "--bench", r"\(1, 'fast'")
    assert len(project.results("--kind", "measured")) == 5, "without asking, one clock is read"
