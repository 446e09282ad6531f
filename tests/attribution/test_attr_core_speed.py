"""The speed script's own side: its generated trace is sound, and every kernel finds its block."""

import json
import subprocess
import sys

from tests.attribution.cli_runner import run


def test_the_generated_trace_is_read_and_attributed_whole() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "k3bench.attribution.speed", "--megabytes", "5", "--rounds", "1"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert 5e6 < found["bytes"] < 5.1e6
    blocks = found["blocks"]
    # 14 kernels a layer: 9 of attention, 3 of the MLP, 2 of the norms, and a layer cut short.
    assert blocks["attention"] > 3 * blocks["mlp"] - 9 > 0
    assert set(blocks) == {"attention", "mlp", "norm"}
    assert found["ours"]["peak_bytes"] < 80e6
    assert "hta" not in found


def test_the_verbs_answer_help_at_once() -> None:
    for verb in ("learn", "apply", "check", "compare", "inventory", "mechanism"):
        assert "--blocks" in run(verb, "--help").out
