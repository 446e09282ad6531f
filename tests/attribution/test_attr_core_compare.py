"""Comparing passes and traces: the split at the forward boundary, the MLA form by its grid."""

from pathlib import Path

import pytest

from k3bench.attribution.blocks import load_blocks
from k3bench.attribution.compare import mla_launch, pass_tokens, split_passes
from k3bench.attribution.reader import read_trace
from tests.attribution.cli_runner import run
from tests.attribution.k3_traces import (
    PrefillKernel,
    dispatches,
    graph_events,
    prefill_events,
    small_specs,
    write_trace,
)
from tests.attribution.published_k3 import published_text

BLOCKS = ("--blocks", "kimi-k3")
BOUNDARY = PrefillKernel("_vocab_parallel_embedding_kernel", 1, 0.05)
# Times per pass as the study prints them: 24 layers, 66.27 ms and 849.87 ms.
CHUNK_1 = [
    BOUNDARY,
    PrefillKernel("_fwd_kernel", 24, 66.27, (1, 12, 128)),
    PrefillKernel("chunk_gated_delta_rule_fwd_kernel_h_blockdim64", 69, 68.84),
    PrefillKernel("set_mla_kv_buffer_kernel", 24, 0.34),
]
CHUNK_2 = [
    BOUNDARY,
    PrefillKernel("_fwd_kernel", 24, 849.87, (1, 12, 256)),
    PrefillKernel("chunk_gated_delta_rule_fwd_kernel_h_blockdim64", 69, 68.88),
    PrefillKernel("Cijk_decompress", 24, 1.52),
]
BEFORE = PrefillKernel("warm_up", 3, 0.3)


@pytest.fixture
def prefill(tmp_path: Path) -> Path:
    return write_trace(tmp_path / "pf32k.json", prefill_events([[BEFORE], CHUNK_1, CHUNK_2]))


def test_a_prefill_of_two_chunks_is_split_at_the_forward_boundary(prefill: Path) -> None:
    trace = read_trace(prefill)
    first, second = split_passes(trace, load_blocks("kimi-k3"))
    assert (len(first), len(second)) == (118, 118)
    # What ran before the first boundary belongs to no pass.
    assert first[0] == 3


def test_the_passes_are_compared_kernel_by_kernel(prefill: Path) -> None:
    found = run("compare", prefill, *BLOCKS, "--json")
    assert found.code == 0
    attention = found.json["in_both"][0]
    assert attention["name"] == "_fwd_kernel"
    assert attention["ratio"] == pytest.approx(849.87 / 66.27)
    assert [row["name"] for row in found.json["only_first"]] == ["set_mla_kv_buffer_kernel"]
    assert [row["name"] for row in found.json["only_second"]] == ["Cijk_decompress"]
    assert "only in pass 2: 1" in run("compare", prefill, *BLOCKS).out


def test_the_mla_form_follows_from_the_launch_geometry(prefill: Path) -> None:
    found = run("compare", prefill, *BLOCKS, "--json").json
    first, second = found["first"]["mla"], found["second"]["mla"]
    assert (first["form"], first["block_m"], first["grid"]) == ("decompressed", 128, [1, 12, 128])
    assert (second["form"], second["block_m"], second["grid"]) == ("absorbed", 64, [1, 12, 256])
    assert second["prefix_tokens"] == 16384
    # Causal pairs: T^2 / 2 within the chunk, T * prefix before it.
    assert first["query_key_pairs"] == 16384**2 / 2
    assert second["query_key_pairs"] == 16384 * 16384 + 16384**2 / 2


def test_the_published_chunk_analysis_comes_out_to_the_printed_digit(prefill: Path) -> None:
    lines = published_text("chunk-split-analysis.txt").splitlines()
    printed = {line[:24].strip(): line[24:].split() for line in lines[2:9]}
    found = run("compare", prefill, *BLOCKS, "--json").json
    ours = [found["first"]["mla"], found["second"]["mla"]]
    for side, column in zip(ours, (0, 1), strict=True):
        assert f"{side['query_key_pairs']:.3e}" == printed["query-key pairs"][column]
        assert f"{side['flop_per_layer']:.3e}" == printed["FLOP per layer"][column]
        assert f"{side['us_per_layer'] / 1e3:.2f}" == printed["ms per layer"][column]
        assert f"{side['flop_per_s'] / 1e12:.0f}" == printed["achieved TFLOP/s"][column]
    assert [side["form"] for side in ours] == printed["MLA form"][:2]
    ratio = found["in_both"][0]["ratio"]
    assert f"{ratio:.2f}" == printed["ms per layer"][2]


def test_an_unknown_geometry_says_why(tmp_path: Path) -> None:
    odd = [BOUNDARY, PrefillKernel("_fwd_kernel", 2, 1.0, (1, 12, 100))]
    mixed = [*odd, PrefillKernel("_fwd_kernel", 2, 1.0, (1, 12, 128))]
    definition = load_blocks("kimi-k3")
    trace = read_trace(write_trace(tmp_path / "odd.json", prefill_events([odd, mixed])))
    first, second = split_passes(trace, definition)
    unfit = mla_launch(trace, first, definition, 16384, 0)
    assert unfit is not None and unfit.form == "unknown" and "fits 0 of 2" in unfit.detail
    several = mla_launch(trace, second, definition, 16384, 0)
    assert several is not None and "2 different grids" in several.detail
    untold = mla_launch(trace, first, definition, None, 0)
    assert untold is not None and "--chunk-tokens" in untold.detail


def test_replayed_kernels_have_no_geometry_to_infer_from(tmp_path: Path) -> None:
    specs = [spec for spec in small_specs() if spec.block is None]
    work = dispatches(specs, 1)
    trace = read_trace(write_trace(tmp_path / "g.json", graph_events(work, 1)))
    assert set(trace.device.grid.tolist()) == {-1}


def test_the_last_chunk_may_be_short() -> None:
    assert pass_tokens(0, 16384, 20000) == (16384, 0)
    assert pass_tokens(1, 16384, 20000) == (3616, 16384)
    assert pass_tokens(2, 16384, 20000) == (None, 32768)
    assert pass_tokens(1, None, 20000) == (None, 0)


def test_two_traces_are_compared_whole(tmp_path: Path) -> None:
    one = write_trace(tmp_path / "one.json", prefill_events([CHUNK_1]))
    other = write_trace(tmp_path / "other.json", prefill_events([CHUNK_2]))
    found = run("compare", one, other, *BLOCKS, "--csv")
    assert found.code == 0
    rows = [line.split(",") for line in found.out.splitlines()]
    assert rows[0] == ["kernel", "first_us", "second_us", "ratio", "first_count", "second_count"]
    assert rows[1][0] == "_fwd_kernel"


def test_a_trace_of_one_pass_alone_cannot_be_compared_with_itself(tmp_path: Path) -> None:
    one = write_trace(tmp_path / "one.json", prefill_events([CHUNK_1]))
    found = run("compare", one, *BLOCKS)
    assert found.code == 64
    assert "1 forward pass, so no pass 2" in found.err


def test_prefill_totals_include_the_collectives_that_shares_leave_out(tmp_path: Path) -> None:
    reduce = PrefillKernel("cross_device_reduce", 187, 40.0)
    definition = tmp_path / "own.toml"
    definition.write_text(
        'name = "own"\n[blocks.kda]\nkernels = ["chunk_gated"]\n'
        '[blocks.attention]\nkernels = ["_fwd_kernel"]\n'
        '[collectives]\nkernels = ["cross_device"]\n[forward]\nboundary = ["_vocab_parallel"]\n'
    )
    from k3bench.attribution.apply import by_map
    from k3bench.attribution.block_map import BlockMap, BlockUse, MappedName
    from k3bench.attribution.compose import compose

    own = load_blocks(definition)
    trace = read_trace(
        write_trace(tmp_path / "p.json", prefill_events([[*CHUNK_1, reduce], [*CHUNK_1, reduce]]))
    )
    names = [(kernel.name, own.block_by_name_rule(kernel.name) or "other") for kernel in CHUNK_1]
    known = BlockMap(
        *("own", "step", 1),
        tuple(MappedName(name, (BlockUse(block, 1, None, None),)) for name, block in names),
        (),
    )
    total_ms = 2 * (sum(kernel.ms for kernel in CHUNK_1) + reduce.ms)
    attributed = by_map(trace, known, own, "prefill")
    found = compose(attributed, own, "prefill", measured_us=total_ms * 1e3 * 1.01)
    verdict = next(check for check in found.checks if check.name == "total")
    assert verdict.status == "ok"
    assert found.chunks == 2
    assert found.excluded_us == pytest.approx(80_000, abs=0.01)
    assert sum(block.share for block in found.blocks) == pytest.approx(1)
