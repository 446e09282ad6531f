"""Fast publishing writes asv's files byte for byte, whatever asv takes; asv is untouched after."""

import gc
import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from asv import graph, results, step_detect, util
from asv.plugins.git import Git
from asv_history import asv_project, published_both_ways

from k3bench.publishing import speed
from k3bench.publishing.publish import fast_publishing
from k3bench.publishing.reads import parsed

COMMITS = 45
# Written by asv-tachyon and our pages after asv, or with the time of day.
NOT_ASV_S = {"index.html", "info.json", "asv-tachyon", "k3bench"}


def git(root: Path, *arguments: str) -> str:
    who = ("-c", "user.name=t", "-c", "user.email=t@localhost")
    return subprocess.run(
        ["git", *who, *arguments], cwd=root, check=True, capture_output=True, text=True
    ).stdout.strip()


@contextmanager
def changed(path: Path) -> Iterator[Any]:
    document = json.loads(path.read_text())
    yield document
    path.write_text(json.dumps(document))


def varied_project(root: Path) -> None:
    """Branches that part and meet, a tag, several rows a revision, and results of all kinds."""
    hashes = asv_project(root, commits=COMMITS, benchmarks=4, parameters=4)
    git(root, "branch", "side", hashes[20])
    git(root, "reset", "-q", "--hard")
    git(root, "checkout", "-q", "side")
    git(root, "commit", "-q", "--allow-empty", "-m", "aside")
    aside = git(root, "rev-parse", "HEAD")
    git(root, "checkout", "-q", "main")
    git(root, "merge", "-q", "--no-ff", "-m", "together", "side")
    together = git(root, "rev-parse", "HEAD")
    git(root, "tag", "-a", "v1", "-m", "one", hashes[30])
    with changed(root / "asv.conf.json") as conf:
        conf["branches"] = ["main", "side"]
        conf["regressions_first_commits"] = {r".*Bench3.*": hashes[10]}
        conf["regressions_thresholds"] = {r".*Bench0.*": 0.01}

    directory = root / "results" / "made-up"

    def file(commit: str, environment: str = "existing-py") -> Path:
        return directory / f"{commit[:8]}-{environment}.json"

    def again(commit: str, source: str, environment: str = "existing-py") -> Any:
        shutil.copy(file(source), file(commit, environment))
        return changed(file(commit, environment))

    for commit in (aside, together, "f" * 40):  # the last one is in no branch
        with again(commit, hashes[-1]) as document:
            document["commit_hash"] = commit
    for number, commit in enumerate(hashes[5:25]):  # two rows a revision, of one graph
        with again(commit, commit, "other") as document:
            document["results"]["suite.Bench1.time_it"][0][number % 4] = 7.5
    for commit in hashes[::2]:  # another graph, with holes and with an environment variable
        with again(commit, commit, "further") as document:
            document["params"] = {**document["params"], "python": "3.12", "extra": None}
            document["env_vars"] = {"MODE": "a/b"}
    for commit, value in zip(hashes, [math.nan, 3, 0, -1.5, None, 1e-320, 2**70] * 4, strict=False):
        with changed(file(commit)) as document:
            document["results"]["suite.Bench0.time_it"][0] = [value]
            document["results"]["suite.Bench2.time_it"][0][1] = value
    with changed(file(hashes[7])) as document:  # all failed; another version; other parameters
        rows = document["results"]
        rows["suite.Bench1.time_it"][0] = None
        rows["suite.Bench2.time_it"][2] = "2"
        rows["suite.Bench3.time_it"][1] = [["3", "0", "9"]]
        for column in range(5, 11):
            rows["suite.Bench3.time_it"][column] = rows["suite.Bench3.time_it"][column][:3]
        rows["suite.Bench3.time_it"][0] = rows["suite.Bench3.time_it"][0][:3]
        rows["gone.time_it"] = rows["suite.Bench0.time_it"]
    with changed(file(hashes[8])) as document:  # older files have fewer columns, and null ones
        for row in document["results"].values():
            del row[7:]
            row[5] = None
    with changed(file(hashes[9])) as document:
        document["results"]["suite.Bench0.time_it"][5:7] = [[-math.inf], [math.inf]]
    with changed(file(hashes[11])) as document:
        document["results"] = {}
    file("a" * 40).write_text("{")
    file("b" * 40).write_text(json.dumps({"version": 1}))
    with again("c" * 40, hashes[0]) as document:
        document["result_columns"][-1] = "unheard_of"


def files(directory: Path) -> dict[Path, bytes]:
    return {
        name: path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and (name := path.relative_to(directory)).parts[0] not in NOT_ASV_S
    }


@pytest.mark.parametrize("kind", ["plain", "varied"])
def test_every_file_of_asv_is_written_byte_for_byte(tmp_path: Path, kind: str) -> None:
    root = tmp_path / "project"
    if kind == "plain":
        asv_project(root, commits=420, benchmarks=3, parameters=3)  # long enough to be resampled
    else:
        varied_project(root)
    published_both_ways(root)
    plain, fast = files(root / "plain"), files(root / "html")
    assert set(plain) <= set(fast)
    assert [name for name in plain if plain[name] != fast[name]] == []
    assert any(name.parts[:2] == ("graphs", "summary") for name in plain)
    assert b"Bench0.time_it" in plain[Path("regressions.json")]
    ours = json.loads((root / "html/info.json").read_text())
    theirs = json.loads((root / "plain/info.json").read_text())
    assert ours.keys() == theirs.keys() and ours["asv-version"] == theirs["asv-version"]


def test_asv_is_as_it_was_afterwards_even_where_publishing_failed() -> None:
    owners = (graph, graph.Graph, graph.GraphSet, results, results.Results, step_detect, util, Git)
    before = [dict(vars(owner)) for owner in owners]
    with pytest.raises(ZeroDivisionError), fast_publishing():
        assert not gc.isenabled()
        assert dict(vars(util)) != before[owners.index(util)]
        1 / 0  # noqa: B018
    assert [dict(vars(owner)) for owner in owners] == before
    assert gc.isenabled() and gc.get_freeze_count() == 0


@pytest.mark.parametrize(
    "text",
    ["-0", "-0.0", "1e400", "-1e400", "1e-400", "NaN", "[1, -Infinity]", "1" * 400, "0.1e1",
     "18446744073709551616", '"\\ud800"', '"\\u0000\x7f"', '{"a": 1, "a": 2}', "4.9e-324",
     "123456789012345678901234567890.5e-10", "0.30000000000000004441", "2.2250738585072011e-308"],
)  # fmt: skip
def test_json_is_read_as_python_reads_it(text: str) -> None:
    assert repr(parsed(text)) == repr(json.loads(text))


@pytest.mark.parametrize("text", ["", "{", "[1,]", "01", "1.", "\ufeff1", '"a\x01b"', "1 2", "nan"])
def test_what_python_does_not_read_is_refused_with_its_words(text: str) -> None:
    with pytest.raises(json.JSONDecodeError) as theirs:
        json.loads(text)
    with pytest.raises(json.JSONDecodeError) as ours:
        parsed(text)
    assert str(ours.value) == str(theirs.value)


def test_the_speed_command_times_both_ways_and_sees_a_file_that_differs(tmp_path: Path) -> None:
    root = tmp_path / "project"
    asv_project(root, commits=12, benchmarks=2, parameters=2)
    found = speed.measured(root, 1)
    assert [len(found[way]) for way in speed.WAYS] == [1, 1]
    assert found["ratio"]["wall_s"] == found["plain"][0]["wall_s"] / found["fast"][0]["wall_s"]
    assert found["different"] == [] and found["files"] > 10
    (root / "fast" / "index.json").write_text("{}")
    (root / "plain" / "more").touch()
    assert speed._compared(root / "plain", root / "fast")[0] == ["index.json", "more"]


def test_an_infinite_result_is_refused_by_the_name_of_its_graph(tmp_path: Path) -> None:
    root = tmp_path / "project"
    hashes = asv_project(root, commits=12, benchmarks=2, parameters=3)
    with changed(root / f"results/made-up/{hashes[3][:8]}-existing-py.json") as document:
        document["results"]["suite.Bench1.time_it"][0][2] = math.inf
    done = subprocess.run(
        [sys.executable, "-m", "k3bench", "publish", "--no-pull"],
        cwd=root, env={**os.environ, "K3BENCH_DB": str(root / "none.sqlite")},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    assert "suite.Bench1.time_it, parameters 2: " in done.stdout + done.stderr
    assert "infinite values" in done.stdout + done.stderr
