"""`k3bench doctor`: pure JSON on stdout, the reasons on stderr, and the exit code they agree on."""

import json

import pytest
from click.testing import CliRunner

import k3bench.doctor
from k3bench.cli.doctor import doctor
from k3bench.doctor.report import Capability, Check, Report

GOOD = Report(
    checks=(
        Check("jax", "ok", "jax [0.10.2]", needed=True),
        Check("tpu", "missing", "no chip", "none needed"),
    ),
    can_measure=(
        Capability("cpu", {"kda_prefill": ("chunked_xla",)}, {"kda_prefill": {"o": "no"}}),
    ),
    can_compile=("gfx950",),
)
BAD = Report(
    checks=(Check("torch", "broken", "not installed", "make bench", needed=True),),
    can_measure=(),
    can_compile=(),
)


@pytest.mark.parametrize(("report", "exit_code"), [(GOOD, 0), (BAD, 1)], ids=["good", "bad"])
def test_the_json_stands_alone_on_stdout(
    report: Report, exit_code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(k3bench.doctor, "diagnose", lambda: report)
    done = CliRunner().invoke(doctor, ["--json"])
    assert done.exit_code == exit_code
    assert json.loads(done.stdout) == report.to_json()


def test_the_table_shows_findings_mends_and_what_can_be_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(k3bench.doctor, "diagnose", lambda: GOOD)
    shown = CliRunner().invoke(doctor, []).stdout
    for words in (
        *("jax [0.10.2]", "none needed", "can measure on cpu", "kda_prefill: chunked_xla"),
        *("kda_prefill: not o: no", "can compile ahead of time for gfx950"),
    ):
        assert words in shown


def test_what_is_broken_is_named_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(k3bench.doctor, "diagnose", lambda: BAD)
    done = CliRunner().invoke(doctor, [])
    assert done.exit_code == 1
    assert "can measure nothing yet" in done.stdout
    assert "k3bench: error: measuring here needs mending first: torch" in done.stderr
