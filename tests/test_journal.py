"""The journal: durable points, taken once, adopted when their run died."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

from k3bench.journal import RunJournal, abandoned, point_key


def key(implementation: str = "a", **changes: object) -> str:
    plan: dict[str, object] = {
        "commit": "c" * 40, "environment": "env", "benchmark": "b", "version": "1",
        "parameters": {"S": 8}, "warmup": 1, "repeat": 2,
    }  # fmt: skip
    return point_key(**{**plan, "implementation": implementation, **changes})


def record(record_id: str, value: float = 1.0) -> dict[str, object]:
    return {"id": record_id, "samples_s": [value], "manifest_id": "m1"}


def test_a_point_is_taken_exactly_once(tmp_path: Path) -> None:
    journal = RunJournal.create(tmp_path, {})
    journal.append(key(), "env", record("r1"))
    assert journal.has_pending(key())
    taken = journal.take(key())
    assert taken is not None and taken.record == record("r1")
    assert taken.delivered_at is not None
    assert journal.take(key()) is None
    assert [point.record["id"] for point in journal.points()] == ["r1"]


def test_rounds_are_taken_in_the_order_measured(tmp_path: Path) -> None:
    journal = RunJournal.create(tmp_path, {})
    for index in range(3):
        journal.append(key(), "env", record(f"r{9 - index}", value=index))
    taken = [journal.take(key()) for _ in range(3)]
    assert [point.record["samples_s"][0] for point in taken if point] == [0, 1, 2]


def test_every_part_of_the_plan_makes_another_key() -> None:
    changes = [
        {"commit": "d" * 40}, {"environment": "x"}, {"benchmark": "x"}, {"version": "2"},
        {"parameters": {"S": 16}}, {"implementation": "x"}, {"warmup": 9}, {"repeat": 9},
    ]  # fmt: skip
    keys = {key(**change) for change in changes} | {key()}
    assert len(keys) == len(changes) + 1


def test_a_living_run_is_never_adopted_and_a_killed_one_is(tmp_path: Path) -> None:
    script = textwrap.dedent(
        """
        import sys, time
        from pathlib import Path
        from k3bench.journal import RunJournal
        journal = RunJournal.create(Path(sys.argv[1]), {"started_at": "then"})
        journal.add_manifest("m1", {"x": 1})
        journal.append("k", "env", {"id": "r1", "manifest_id": "m1"})
        print("ready", flush=True)
        time.sleep(60)
        """
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    assert list(abandoned(tmp_path)) == []

    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    (dead,) = abandoned(tmp_path)
    assert dead.header()["started_at"] == "then"

    heir = RunJournal.create(tmp_path, {})
    heir.adopt(dead, list(dead.points()))
    dead.remove()
    assert heir.manifests() == {"m1": {"x": 1}}
    adopted = heir.take("k")
    assert adopted is not None and adopted.record["id"] == "r1"


def test_a_write_that_was_cut_off_leaves_no_point(tmp_path: Path) -> None:
    journal = RunJournal.create(tmp_path, {})
    (journal.directory / "pending" / ".k-r1.json.abc.tmp").write_text('{"key": "k", "rec')
    assert list(journal.points()) == []
    assert journal.take("k") is None


def test_points_are_plain_json_that_a_person_can_read(tmp_path: Path) -> None:
    journal = RunJournal.create(tmp_path, {})
    journal.append(key(), "env", record("r1"))
    (path,) = (journal.directory / "pending").glob("*.json")
    assert json.loads(path.read_text())["record"]["id"] == "r1"
