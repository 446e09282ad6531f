"""The paired MI300X trace: the oracle's composition, by pairing and by a learned map."""

from pathlib import Path

import pytest

from tests.attribution.cli_runner import run
from tests.shared_data import shared_file

ORACLE = {
    "attention": (360, 4681.2, 48.48),
    "mlp": (108, 4203.9, 43.54),
    "norm": (72, 347.8, 3.60),
    "outside": (4, 423.5, 4.39),
}
BLOCKS = ("--blocks", "generic-decoder")


@pytest.fixture
def pair() -> tuple[Path, Path]:
    folder = "traces/sglang_decode_mi300x"
    return shared_file(f"{folder}/capture.json.gz"), shared_file(f"{folder}/replay.json.gz")


def test_pairing_gives_the_oracle_to_the_printed_digit(pair: tuple[Path, Path]) -> None:
    capture, replay = pair
    found = run("apply", replay, "--capture", capture, *BLOCKS, "--json")
    assert found.code == 0
    blocks = found.json["blocks"]
    assert {
        name: (row["dispatches"], round(row["us"], 1), round(100 * row["share"], 2))
        for name, row in blocks.items()
    } == ORACLE
    assert found.json["unmapped"] == []
    assert found.json["device"] == "AMD Instinct MI300X"
    assert "544 of 544" in found.checks()["paired by position"]["detail"]


@pytest.mark.parametrize("with_replay", [True, False], ids=["timed_map", "map_of_capture_alone"])
def test_the_learned_map_is_within_half_a_point_and_names_the_shared_kernel(
    pair: tuple[Path, Path], tmp_path: Path, with_replay: bool
) -> None:
    capture, replay = pair
    kept = tmp_path / "map.json"
    durations = ("--replay", replay) if with_replay else ()
    learned = run("learn", capture, *durations, *BLOCKS, "--out", kept, "--json")
    assert learned.code == 0
    assert len(learned.json["names"]) == 16
    assert round(100 * learned.json["injectivity"]["dispatches"], 1) == 86.8
    if with_replay:
        assert round(100 * learned.json["injectivity"]["time"], 1) == 96.4
    else:
        assert learned.json["injectivity"]["time"] is None
    (shared,) = learned.json["shared"]
    assert shared["split"] == {"norm": 71, "outside": 1}

    found = run("apply", replay, "--map", kept, *BLOCKS, "--json")
    assert found.code == 0
    for name, (_, _, percent) in ORACLE.items():
        assert abs(100 * found.json["blocks"][name]["share"] - percent) < 0.5
    assert any("norm 71, outside 1" in note for note in found.json["notes"])
    verdict = found.checks()["shared names"]
    assert verdict["status"] == ("ok" if with_replay else "skipped")


def test_an_eager_trace_needs_neither_capture_nor_map() -> None:
    eager = shared_file("traces/sglang_prefill_decode_eager/eager.json.gz")
    found = run("apply", eager, "--phase", "prefill", *BLOCKS, "--json")
    assert found.code == 0
    assert found.json["method"] == "ranges"
    # One layer: 9 kernels of attention, 3 of the MLP and 2 of the norms.
    counts = {name: row["dispatches"] for name, row in found.json["blocks"].items()}
    assert (counts["attention"], counts["mlp"], counts["norm"]) == (9 * 36, 3 * 36, 2 * 36)


def test_a_replay_does_not_pair_with_an_eager_trace(pair: tuple[Path, Path]) -> None:
    eager = shared_file("traces/sglang_prefill_decode_eager/eager.json.gz")
    found = run("apply", pair[1], "--capture", eager, *BLOCKS)
    assert found.code == 65
    assert "not a capture trace" in found.err


def test_a_rocm_6_trace_without_version_keys_is_read() -> None:
    from k3bench.attribution.reader import read_trace

    trace = read_trace(shared_file("traces/mi250_minitoy_train_ROCm6_2_kineto.json.gz"))
    assert len(trace.device) == 16
    assert sorted(set(trace.device.kind.tolist())) == [0, 1]
    assert (trace.device.correlation >= 0).all()
