"""`k3bench gate` on a small real ledger: what is printed where, sides by name, and exit codes."""

import json
import subprocess
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner
from ledger.records import measured, unmeasured, wrong

import manifests
from k3bench.cli.gate import gate, share
from k3bench.ledger import ingest, open_ledger
from k3bench.paths import MARKER

REPOSITORY = Path(__file__).resolve().parents[2]
GIT = ("git", "-c", "user.name=Ada", "-c", "user.email=ada@example.org")


@pytest.fixture(scope="module")
def manifest():
    return dict(manifests.capture(REPOSITORY))


@pytest.fixture
def commits(tmp_path, monkeypatch):
    """A project with eight commits, as the current directory; their hashes, the oldest first."""
    monkeypatch.delenv("K3BENCH_DB", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / MARKER).write_text("{}")
    subprocess.run(["git", "init", "-q"], check=True)
    for number in range(8):
        message = f"<script>alert({number})</script> | @all"
        subprocess.run([*GIT, "commit", "-q", "--allow-empty", "-m", message], check=True)
    listed = subprocess.run(
        ["git", "rev-list", "--reverse", "HEAD"], capture_output=True, text=True, check=True
    )
    return listed.stdout.split()


@pytest.fixture
def store(commits, manifest):
    """Stores records of a commit: ``factor`` on 12 samples of each named implementation."""

    def run(commit, factor=1.0, run="run-1", names=("first", "second"), document=None, **changes):
        document = document or manifest
        seed = [commits.index(commit) if commit in commits else 99, *run.encode()]
        random = np.random.default_rng(seed)
        records = []
        for name in names:
            samples = tuple((1e-3 * factor * np.exp(0.02 * random.standard_normal(12))).tolist())
            record = measured(
                manifests.manifest_id(document),
                samples,
                run_id=run,
                commit=commit,
                implementation=name,
            )
            records.append({**record, **changes})
        with open_ledger() as ledger:
            ingest(ledger, records, [document])

    return run


def invoke(*arguments):
    return CliRunner().invoke(gate, list(arguments))


def test_the_same_speed_passes_and_json_goes_to_stdout_alone(commits, store):
    store(commits[0])
    store(commits[1])
    outcome = invoke(commits[0], commits[1], "--json")
    assert outcome.exit_code == 0 and outcome.stderr == ""
    document = json.loads(outcome.stdout)
    assert (document["base"], document["head"]) == (commits[0], commits[1])
    assert document["verdict"] == "passed" and document["compared"] == 2


def test_sides_are_prefixes_references_or_runs(commits, store):
    store(commits[6], run="before")
    store(commits[7], run="after")
    for sides in (
        (commits[6][:8], "HEAD"),
        ("HEAD~1", commits[7]),
        ("before", "after"),
        ("before", "HEAD"),
    ):
        assert invoke(*sides).exit_code == 0, sides


def test_a_commit_that_only_the_ledger_knows_is_found_by_its_prefix(commits, store):
    store("c0ffee" + "0" * 34)
    store(commits[1])
    assert invoke("c0ffee", commits[1]).exit_code == 0


def test_a_slow_down_exits_with_1_and_is_named_in_every_form(commits, store):
    store(commits[0])
    store(commits[1], 1.8, names=("first",))
    store(commits[1], names=("second",))
    for form in ((), ("--json",), ("--markdown",)):
        outcome = invoke(commits[0], commits[1], *form)
        assert outcome.exit_code == 1 and "slower" in outcome.stdout, form
    table = invoke(commits[0], commits[1]).stdout
    assert "first" in table and "failed: 2 points compared: 1 slower, 1 unchanged" in table
    assert "second" not in table and "second" in invoke(commits[0], commits[1], "--all").stdout


def test_a_speed_up_passes(commits, store):
    store(commits[0])
    store(commits[1], 1 / 1.8, names=("first",))
    store(commits[1], names=("second",))
    outcome = invoke(commits[0], commits[1])
    assert outcome.exit_code == 0 and "faster" in outcome.stdout


def test_what_is_missing_or_wrong_in_head_exits_with_1(commits, store):
    store(commits[0])
    store(commits[1], names=("first",))
    outcome = invoke(commits[0], commits[1])
    assert outcome.exit_code == 1 and "missing" in outcome.stdout
    store(commits[1], names=("second",), **wrong())
    outcome = invoke(commits[0], commits[1])
    assert outcome.exit_code == 1 and "wrong" in outcome.stdout


def test_a_small_slow_down_in_single_runs_could_not_be_judged(commits, store):
    store(commits[0], names=("first",))
    store(commits[1], 1.08, names=("first",))
    outcome = invoke(commits[0], commits[1])
    assert outcome.exit_code == 2 and "suspected" in outcome.stdout
    assert invoke(commits[0], commits[1], "--assume-run-noise", "0").exit_code == 1
    assert invoke(commits[0], commits[1], "--threshold", "50%").exit_code == 0


def test_repeated_runs_settle_it(commits, store):
    for number in range(4):
        store(commits[0], run=f"base-{number}", names=("first",))
        store(commits[1], 1.08, run=f"head-{number}", names=("first",))
    outcome = invoke(commits[0], commits[1], "--json")
    assert outcome.exit_code == 1
    statistics = json.loads(outcome.stdout)["findings"][0]["statistics"]
    assert statistics["basis"] == "repeats" and statistics["runs"] == [4, 4]


def test_other_library_versions_are_refused_or_allowed_by_name(commits, store, manifest):
    other = json.loads(json.dumps(manifest))
    other["environment"]["libraries"]["distributions"]["jax"] = "0.0.1"
    store(commits[0])
    store(commits[1], document=other)
    outcome = invoke(commits[0], commits[1])
    assert outcome.exit_code == 2
    assert "refused: environment.libraries.distributions.jax" in outcome.stdout
    assert "(--allow-difference environment.libraries.distributions.jax)" in outcome.stdout
    outcome = invoke(commits[0], commits[1], "--allow-difference", "jax_version")
    assert outcome.exit_code == 0 and "allowed: environment.libraries" in outcome.stdout


def test_compiled_figures_fail_on_any_change_for_the_worse(commits, store, manifest):
    records = [
        {
            **measured(manifests.manifest_id(manifest), commit=commit),
            **unmeasured("compiled"),
            "median_s": None,
            "tokens_per_s": None,
            "preset": None,
            "figures": {"hbm_bytes": size},
        }
        for commit, size in ((commits[0], 100), (commits[1], 101))
    ]
    with open_ledger() as ledger:
        ingest(ledger, records, [manifest])
    assert invoke(commits[0], commits[1]).exit_code == 1
    assert invoke(commits[1], commits[0]).exit_code == 0
    assert invoke(commits[0], commits[1], "--accept", "hbm_bytes").exit_code == 0
    assert invoke(commits[0], commits[1], "--kind", "measured").exit_code == 2


def test_hostile_names_are_shown_and_not_obeyed(commits, store):
    hostile = {"benchmark": "[red]<b>|x|</b>", "parameters": {"[bold]": "@all | `x`"}}
    store(commits[0], **hostile)
    store(commits[1], 2.0, names=("first",), **hostile)
    assert "[red]<b>|x|</b>([bold]=@all | `x`) first" in invoke(commits[0], commits[1]).stdout
    markdown = invoke(commits[0], commits[1], "--markdown").stdout
    assert "<b>" not in markdown and "@all" not in markdown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["HEAD", "no-such-branch"], "neither a run of the ledger nor a commit"),
        (["HEAD", "--upload-pack=x"], "No such option"),
        (["HEAD", "HEAD"], "are the same commit"),
        (["HEAD~1", "HEAD", "--threshold", "x"], "write a share"),
        (["HEAD~1", "HEAD", "--threshold", "3"], "write a share"),
        (["HEAD~1", "HEAD", "--json", "--markdown"], "choose one"),
        (["HEAD~1", "HEAD", "--benchmark", "("], "no regular expression"),
        (["HEAD~1", "HEAD", "--benchmark", "nothing"], "matches no benchmark"),
        (["HEAD~1", "HEAD", "--false-alarms", "0"], "false_alarms"),
        (["history", "HEAD"], "write BASE..HEAD"),
        (["history", "HEAD..HEAD"], "no commit of HEAD's lies after BASE"),
        (["history", "nope..HEAD"], "git knows no such commit"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_meant_is_one_line_of_usage(commits, store, arguments, message):
    store(commits[7])
    outcome = invoke(*arguments)
    assert outcome.exit_code in (64, click.UsageError.exit_code) and outcome.stdout == ""
    assert message in outcome.stderr


def test_a_run_of_several_commits_is_no_side(commits, store):
    store(commits[0], run="ab-run")
    store(commits[1], run="ab-run", names=("first",))
    store(commits[2])
    outcome = invoke("ab-run", commits[2])
    assert outcome.exit_code == 64
    both = ", ".join(sorted(commit[:12] for commit in commits[:2]))
    assert f"ab-run: a run of 2 commits ({both}): give the commits" in outcome.stderr


def test_options_that_select_nothing_say_what_there_is(commits, store):
    store(commits[0])
    store(commits[1], preset="ladder")
    outcome = invoke(commits[0], commits[1], "--preset", "ladder")
    assert outcome.exit_code == 2
    assert f"{commits[0]}: the ledger has no results of it that the options select" in (
        outcome.stderr
    )
    assert "it has measured on cpu (smoke)" in outcome.stderr


def test_names_that_met_nothing_are_noted(commits, store):
    store(commits[0])
    store(commits[1])
    for form in ((), ("--markdown",), ("--json",)):
        options = ("--accept", "vmem_byte", "--allow-difference", "jaxx")
        outcome = invoke(commits[0], commits[1], *options, *form)
        assert outcome.exit_code == 0
        assert "vmem_byte" in outcome.stdout and "no figure of that name got worse" in (
            outcome.stdout
        )
        assert "jaxx" in outcome.stdout and "nothing of that name differs" in outcome.stdout


def test_what_was_measured_in_turns_is_said_and_what_was_not_is_advised(commits, store):
    store(commits[0], names=("first",))
    store(commits[1], 1.08, names=("first",))
    outcome = invoke(commits[0], commits[1])
    assert "measure both in turns (k3bench ab BASE HEAD)" in outcome.stdout
    in_turns(store, commits, 1.15)
    outcome = invoke(commits[0], commits[1])
    assert outcome.exit_code == 1
    assert "1 of 1 measured point compared sample by sample" in outcome.stdout


def in_turns(store, commits, factor, run="ab-run"):
    """What `k3bench ab` stores of one implementation: a record a side, each naming the other."""
    for commit, other, slower in ((0, 1, 1.0), (1, 0, factor)):
        store(
            commits[commit],
            slower,
            run=run,
            names=("first",),
            figures={"in_turns_with": commits[other]},
        )


def test_the_noise_of_a_single_run_in_turns_is_assumed_as_told(commits, store):
    in_turns(store, commits, 1.1)
    assert invoke(commits[0], commits[1]).exit_code == 1
    unmoved = invoke(commits[0], commits[1], "--assume-run-noise", "20%")
    assert unmoved.exit_code == 1, "that is of runs apart"
    outcome = invoke(commits[0], commits[1], "--assume-turn-noise", "20%")
    assert outcome.exit_code == 2 and "suspected" in outcome.stdout
    assert "measure both again (k3bench ab BASE HEAD)" in outcome.stdout
    refused = invoke(commits[0], commits[1], "--assume-turn-noise", "3")
    assert refused.exit_code == 64 and "--assume-turn-noise 3: write a share" in refused.stderr
    for number in range(3):
        in_turns(store, commits, 1.1, run=f"again-{number}")
    settled = invoke(commits[0], commits[1], "--assume-turn-noise", "20%")
    assert settled.exit_code == 1, "with several runs nothing need be assumed"


def test_a_history_that_is_too_short_says_how_long_it_must_be(commits, store):
    store(commits[6])
    store(commits[7])
    outcome = invoke("history", "HEAD~1..HEAD")
    assert outcome.exit_code == 2
    assert "2 too short to say (a measured series needs 5 commits with results" in outcome.stdout


def test_a_commit_without_results_could_not_be_judged(commits, store):
    store(commits[7])
    outcome = invoke("HEAD~1", "HEAD")
    assert outcome.exit_code == 2 and "the ledger has no results of it" in outcome.stderr


def test_no_ledger_exits_with_no_input(commits):
    assert invoke("HEAD~1", "HEAD").exit_code == 66


def test_history_finds_the_step_and_its_commits(commits, store):
    for number, commit in enumerate(commits):
        store(commit, 1.5 if number >= 5 else 1.0, run=f"run-{number}", names=("first",))
    outcome = invoke("history", f"{commits[0][:9]}..HEAD", "--json")
    assert outcome.exit_code == 1
    (change,) = json.loads(outcome.stdout)["changes"]
    assert change["range"] == f"{commits[4]}..{commits[5]}" and change["worse"]
    table = invoke("history", f"{commits[0]}..HEAD").stdout
    assert f"{commits[4][:10]}..{commits[5][:10]}" in table and "lasts" in table
    markdown = invoke("history", f"{commits[0]}..HEAD", "--markdown", "--benchmark", "kda").stdout
    assert markdown.startswith("## History: 1 changes in 1 series over 8 commits")
    assert invoke("history", f"{commits[0]}..HEAD", "--threshold", "90%").exit_code == 0


def test_simulate_prints_its_headline_as_json():
    outcome = invoke("simulate", "--runs", "10", "--seed", "1", "--json")
    document = json.loads(outcome.stdout)
    assert outcome.exit_code == 0 and outcome.stderr == ""
    assert {"false_alarm_rate", "power_3pct", "runs"} <= document.keys()
    assert {"false_alarm_rate_in_turns", "power_5pct_in_turns", "in_turns"} <= document.keys()
    assert document["false_alarm_rate"] <= 0.1 and document["power_3pct"] >= 0.8


@pytest.mark.parametrize(
    ("text", "value"), [("3%", 0.03), ("0.03", 0.03), ("0", 0.0), (" 150% ", 1.5)]
)
def test_shares_are_read_as_people_write_them(text, value):
    assert share("--x", text) == pytest.approx(value)
