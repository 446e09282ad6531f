"""Learn, apply and check on small made-up traces; every mutation is refused for its reason."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.attribution.cli_runner import Ran, run
from tests.attribution.k3_traces import (
    Dispatch,
    capture_events,
    dispatches,
    eager_events,
    floored,
    graph_events,
    small_specs,
    write_trace,
)

STEPS = 4
BLOCKS = ("--blocks", "kimi-k3")
KDA = "fused_recurrent_kda_packed_decode_kernel"
ALL_REDUCE = "_ZN5aiter26cross_device_reduce_1stage"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("synthetic")


@pytest.fixture(scope="module")
def work() -> list[Dispatch]:
    return dispatches(small_specs(), STEPS)


@pytest.fixture(scope="module")
def eager(folder: Path, work: list[Dispatch]) -> Path:
    return write_trace(folder / "eager.json.gz", eager_events(work))


@pytest.fixture(scope="module")
def graph(folder: Path, work: list[Dispatch]) -> Path:
    return write_trace(folder / "graph.json", graph_events(work, STEPS))


@pytest.fixture(scope="module")
def capture(folder: Path) -> Path:
    return write_trace(folder / "capture.json", capture_events(dispatches(small_specs(), 1)))


@pytest.fixture(scope="module")
def learned(folder: Path, eager: Path) -> Path:
    kept = folder / "map.json"
    assert run("learn", eager, *BLOCKS, "--out", kept).code == 0
    return kept


def us_of(specs_block: str | None, names: set[str] | None = None) -> float:
    return sum(
        spec.us_per_step
        for spec in small_specs()
        if spec.block == specs_block and (names is None or spec.name in names)
    )


def assert_composition(found: Ran) -> None:
    assert found.code == 0, found.err
    blocks = found.json["blocks"]
    residual = {"_score_kernel", "_combine_kernel"}
    rest = {"_vocab_parallel_embedding_kernel", "greedy_sample_kernel"}
    expected = {
        "kda": (3 * 69, us_of("kda")),
        "full_attn": (3 * 24, us_of("full_attn")),
        "moe": (2 * 92 + 1, us_of("moe") + us_of("dense_mlp")),
        "attn_residual": (2 * 186, us_of(None, residual)),
        "other": (2, us_of(None, rest)),
    }
    assert {name: row["dispatches"] for name, row in blocks.items()} == {
        name: count for name, (count, _) in expected.items()
    }
    for name, (_, us) in expected.items():
        assert blocks[name]["us"] == pytest.approx(us, abs=0.01), name
    assert sum(row["share"] for row in blocks.values()) == pytest.approx(1)
    assert found.json["collectives_excluded"]["dispatches"] == 187
    assert blocks["kda"]["us_per_layer"] == pytest.approx(us_of("kda") / 69, abs=0.001)


def test_an_eager_trace_is_attributed_by_its_ranges(eager: Path) -> None:
    found = run("apply", eager, *BLOCKS, "--json")
    assert_composition(found)
    assert found.json["method"] == "ranges"


def test_a_graph_trace_is_attributed_by_the_learned_map(graph: Path, learned: Path) -> None:
    found = run("apply", graph, "--map", learned, *BLOCKS, "--json")
    assert_composition(found)
    assert found.json["steps"] == STEPS
    assert found.json["blocks"]["full_attn"]["shared_us"] == pytest.approx(
        us_of("full_attn", {"hgemm_shared_tile"}), abs=0.01
    )
    assert found.checks()["shared names"]["status"] == "ok"


def test_a_graph_trace_is_attributed_by_its_capture(graph: Path, capture: Path) -> None:
    found = run("apply", graph, "--capture", capture, *BLOCKS, "--json")
    assert_composition(found)
    assert found.json["method"] == "paired"


def test_learning_says_how_the_shared_name_is_split(eager: Path) -> None:
    found = run("learn", eager, *BLOCKS, "--json")
    (shared,) = found.json["shared"]
    assert shared["split"] == {"kda": 69, "full_attn": 24}
    # Of 839 dispatches that are no collectives, 93 share a name.
    assert found.json["injectivity"]["dispatches"] == pytest.approx(1 - 93 / 838)


def test_durations_that_disagree_are_not_split_by_count(tmp_path: Path) -> None:
    specs = [
        replace(spec, name=f"hgemm_{spec.block}") if spec.name == "hgemm_shared_tile" else spec
        for spec in small_specs()
    ]
    apart = dispatches(specs, STEPS)
    # One kernel name, three times slower in full attention than in KDA.
    slow = [
        replace(
            item,
            name="hgemm_shared_tile",
            duration_ns=item.duration_ns * (3 if item.block == "full_attn" else 1),
        )
        if item.name.startswith("hgemm_")
        else item
        for item in apart
    ]
    eager = write_trace(tmp_path / "eager.json", eager_events(slow))
    graph = write_trace(tmp_path / "graph.json", graph_events(slow, STEPS))
    kept = tmp_path / "map.json"
    assert run("learn", eager, *BLOCKS, "--out", kept).code == 0
    by_ranges = run("apply", eager, *BLOCKS, "--json").json["blocks"]
    found = run("apply", graph, "--map", kept, *BLOCKS, "--json")
    assert found.code == 0
    verdict = found.checks()["shared names"]
    assert verdict["status"] == "skipped"
    assert "3.00 times" in verdict["detail"] and "cannot be split by count" in verdict["detail"]
    for name in ("kda", "full_attn"):
        assert found.json["blocks"][name]["us"] == pytest.approx(by_ranges[name]["us"], rel=1e-6)


def test_the_total_is_checked_against_a_measured_itl(graph: Path, learned: Path) -> None:
    total = run("apply", graph, "--map", learned, *BLOCKS, "--json").json["total_us"] / 1e3
    for ratio, code in ((0.933, 0), (0.5, 1), (2.0, 1)):
        found = run(
            "apply", graph, "--map", learned, *BLOCKS, "--measured-ms", total * ratio, "--json"
        )
        assert found.code == code
        assert found.checks()["total"]["status"] == ("failed" if code else "ok")
        # A composition that does not add up is not shown.
        assert bool(found.json["blocks"]) == (code == 0)


def drop_one(work: list[Dispatch]) -> list[Dispatch]:
    """One KDA recurrence missing, in the last step."""
    last = max(n for n, item in enumerate(work) if item.name == KDA)
    return work[:last] + work[last + 1 :]


def rename_one(work: list[Dispatch]) -> list[Dispatch]:
    first = next(n for n, item in enumerate(work) if item.name == "mfma_moe2_down")
    return [*work[:first], replace(work[first], name="moe2_renamed"), *work[first + 1 :]]


def drop_in_every_step(work: list[Dispatch]) -> list[Dispatch]:
    """The replay lost one conv kernel a step, so that every count stays whole."""
    size = len(work) // STEPS
    kept = []
    for step in range(STEPS):
        one = work[step * size : (step + 1) * size]
        at = next(n for n, item in enumerate(one) if item.name == "_causal_conv1d_update_kernel")
        kept += one[:at] + one[at + 1 :]
    return kept


def inflate_collectives(work: list[Dispatch]) -> list[Dispatch]:
    return [
        replace(item, duration_ns=item.duration_ns * 60) if item.name == ALL_REDUCE else item
        for item in work
    ]


MUTATIONS = [
    (drop_one, "count of KDA recurrence", "68.75 a step, expected 69"),
    (drop_one, "integral counts", f"{KDA}: 275 dispatches in 4 steps"),
    (drop_one, "replays alike", "replay 4 of 4"),
    (rename_one, "unmapped names", "moe2_renamed: 0.25 a step"),
    (rename_one, "count of expert GEMM 2", "91.75 a step, expected 92"),
    (drop_in_every_step, "counts as learned", "_causal_conv1d_update_kernel 68 a step, learned 69"),
    (floored, "fractional durations", "whole microseconds"),
    (inflate_collectives, "collectives", "out of step"),
]


@pytest.mark.parametrize(
    ("mutate", "check", "reason"),
    [pytest.param(*case, id=f"{case[0].__name__}-{case[1]}") for case in MUTATIONS],
)
def test_a_mutated_trace_is_refused_for_the_right_reason(
    mutate: Callable[[list[Dispatch]], list[Dispatch]],
    check: str,
    reason: str,
    work: list[Dispatch],
    learned: Path,
    tmp_path: Path,
) -> None:
    trace = write_trace(tmp_path / "mutated.json", graph_events(mutate(work), STEPS))
    found = run("apply", trace, "--map", learned, *BLOCKS, "--json")
    assert found.code == 1
    assert found.err.startswith("k3bench: error: refused: ")
    assert found.json["blocks"] == {} and found.json["total_us"] is None
    verdict = found.checks()[check]
    assert verdict["status"] == "failed"
    assert reason in verdict["detail"]
    shown = run("apply", trace, "--map", learned, *BLOCKS, "--json", "--show-refused")
    assert shown.code == 1 and shown.json["blocks"]


@pytest.mark.parametrize("mutate", [drop_one, rename_one, drop_in_every_step])
def test_a_mutated_replay_does_not_pair_and_the_difference_is_named(
    mutate: Callable[[list[Dispatch]], list[Dispatch]],
    work: list[Dispatch],
    capture: Path,
    tmp_path: Path,
) -> None:
    trace = write_trace(tmp_path / "mutated.json", graph_events(mutate(work), STEPS))
    found = run("apply", trace, "--capture", capture, *BLOCKS, "--json")
    assert found.code == 65
    assert "captured was" in found.err or "is missing" in found.err
    assert found.out == ""


def test_zero_kernels_are_an_error(tmp_path: Path, learned: Path) -> None:
    trace = write_trace(tmp_path / "empty.json", [])
    found = run("apply", trace, "--map", learned, *BLOCKS)
    assert found.code == 65
    assert "no kernels" in found.err


def test_eager_collectives_are_launch_skew_and_may_not_be_counted_in(
    tmp_path: Path, work: list[Dispatch]
) -> None:
    trace = write_trace(tmp_path / "eager.json", eager_events(inflate_collectives(work)))
    left_out = run("apply", trace, *BLOCKS, "--json")
    assert left_out.code == 0
    assert "launch skew" in left_out.checks()["collectives"]["detail"]
    counted_in = run("apply", trace, *BLOCKS, "--json", "--include-collectives")
    assert counted_in.code == 1
    assert counted_in.checks()["collectives"]["status"] == "failed"


def test_check_compares_the_counts_of_several_traces(
    tmp_path: Path, work: list[Dispatch], graph: Path, learned: Path
) -> None:
    assert run("check", graph, graph, "--map", learned, *BLOCKS).code == 0
    other = write_trace(tmp_path / "other.json", graph_events(drop_in_every_step(work), STEPS))
    found = run("check", graph, other, "--map", learned, *BLOCKS, "--json")
    assert found.code == 1
    assert "68 a step in other.json" in found.checks()["same counts at every context"]["detail"]


def test_check_cannot_judge_without_anything_independent(tmp_path: Path) -> None:
    definition = tmp_path / "own.toml"
    definition.write_text('name = "own"\n[blocks.kda]\nranges = ["K3/kda"]\n')
    trace = write_trace(tmp_path / "e.json", eager_events(dispatches(small_specs(), 1)))
    found = run("check", trace, "--blocks", definition, "--steps", 1)
    assert found.code == 2
    assert "--measured-ms" in found.err


def test_a_cut_off_trace_is_read_to_the_cut_and_refused(graph: Path, learned: Path) -> None:
    text = graph.read_bytes()
    cut = graph.with_name("cut.json")
    cut.write_bytes(text[: len(text) // 2])
    found = run("apply", cut, "--map", learned, *BLOCKS, "--json")
    assert found.code == 1
    assert "cut off at byte" in found.checks()["whole file"]["detail"]
    assert any("events up to there were read" in note for note in found.json["notes"])


def test_inventory_lists_every_kernel_with_its_block_and_count(graph: Path, learned: Path) -> None:
    found = run("inventory", graph, "--map", learned, *BLOCKS, "--json")
    rows = {(row["name"], row["block"]): row for row in found.json["kernels"]}
    assert rows["hgemm_shared_tile", "kda"]["dispatches"] == 69
    assert rows["hgemm_shared_tile", "full_attn"]["split"] == "by count"
    assert rows[KDA, "kda"]["shared"] is False
    table = run("inventory", graph, "--map", learned, *BLOCKS, "--csv")
    assert table.out.startswith("context,kernel,block,component,")


def test_mechanism_needs_the_context(graph: Path, learned: Path) -> None:
    found = run("mechanism", graph, "--map", learned, *BLOCKS)
    assert found.code == 64 and "--input-tokens" in found.err
    given = run("mechanism", graph, "--map", learned, *BLOCKS, "--input-tokens", 4096, "--json")
    cache = next(row for row in given.json["traffic"] if row["block"] == "full_attn")
    assert cache["bytes_per_step"] == 4096 * 24 * 576 * 2
    assert cache["bytes_per_s"] == pytest.approx(4096 * 24 * 1152 / 307.6e-6, rel=1e-4)


def test_usage_errors_have_their_codes(graph: Path, learned: Path, capture: Path) -> None:
    both = run("apply", graph, "--map", learned, "--capture", capture, *BLOCKS)
    assert both.code == 64
    assert run("apply", graph, "--map", learned, "--blocks", "nope").code == 64
    assert run("apply", graph.with_name("gone.json"), *BLOCKS).code == 66
    assert run("apply", graph, "--map", graph, *BLOCKS).code == 65


def test_a_map_that_was_tampered_with_is_refused(learned: Path, graph: Path) -> None:
    data = json.loads(learned.read_text())
    for spoil in ("names", "scope", "sources"):
        broken = learned.with_name("broken.json")
        broken.write_text(json.dumps({**data, spoil: 3}))
        found = run("apply", graph, "--map", broken, *BLOCKS)
        assert found.code == 65 and "learn it again" in found.err


def test_ranges_are_refused_on_a_trace_with_graph_replays(graph: Path) -> None:
    for verb in ("apply", "learn"):
        found = run(verb, graph, *BLOCKS)
        assert found.code == 65
        assert "4 graph replays, whose kernels no host range encloses" in found.err


def test_a_map_of_another_definition_is_refused(graph: Path, learned: Path) -> None:
    found = run("apply", graph, "--map", learned, "--blocks", "generic-decoder")
    assert found.code == 65
    assert "learned with kimi-k3" in found.err


def test_structural_counts_that_contradict_each_other_leave_no_number_of_steps(
    tmp_path: Path, work: list[Dispatch]
) -> None:
    trace = write_trace(tmp_path / "eager.json", eager_events(drop_one(work)))
    found = run("apply", trace, *BLOCKS)
    assert found.code == 65
    assert "KDA recurrence 3.98551, MLA stage 1 4" in found.err
    given = run("apply", trace, *BLOCKS, "--steps", STEPS, "--json")
    assert given.code == 1
    assert given.checks()["count of KDA recurrence"]["status"] == "failed"
