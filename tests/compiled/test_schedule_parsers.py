"""The parsers against small schedules written by hand, and against formats that changed."""

import numpy as np
import pytest

from k3bench.compiled.errors import CompiledFormatError
from k3bench.compiled.tpu.breakdown import CATEGORIES, bundle_shares, category
from k3bench.compiled.tpu.bundles import parse_bundles
from k3bench.compiled.tpu.control import execute
from k3bench.compiled.tpu.kernel import analyse
from k3bench.compiled.tpu.targets import SLOTS
from k3bench.compiled.tpu.utilization import parse_utilization

DELAY = ["{}"] * 4


def listing(*bundles: str, labels: dict[int, str] | None = None) -> str:
    """A dump of these bundle bodies, addressed as the compiler does."""
    lines = ["= control target key start", "LB: loop body", "= control target key end", ""]
    for address, body in enumerate(bundles):
        label = (labels or {}).get(address, "")
        place = "0" if address == 0 else f"{address:#x}"
        lines.append(f"{place:>6} {label:2} : > {body}".replace("   :", "  :"))
    return "\n".join(lines) + "\n"


# for (i = 0; i < 7; i++) { if (table[i] == 0) skip five bundles; two more bundles }
LOOP = listing(
    "{ %s1_s0 = inlined_call_operand.<no memory space> [shape: s32[7], index: 1, kind: output] }",
    "{ %s2_s1 = inlined_call_operand.vmem [shape: s32[7], index: 0, kind: input, shape index: {}]"
    "  ;;  %s3_s2 = smov [#allocation4] /* materialized constant */ }",
    "{ %s4_s1 = sshll.u32 %s2_s1, 4  ;;  %s5_s1 = int_to_ptr.vmem [resolvable:$true] %s4_s1 }",
    "{ %6 = dma.vmem_to_smem /*vmem=*/%s5_s1, /*size_in_granules=*/16, /*smem=*/%s3_s2, "
    "/*dst_syncflagno=*/[#allocation3]  ;;  %s7_s5 = smov 0 /* copy for cssa */ }",
    "{ %s8_s5 = sphi %s7_s5, %s9_s5 /* phi copy */ }",
    "{ %s10_s6 = sld [smem:[#allocation4 + %s8_s5]] }",
    "{ %p11_p1 = scmp.eq.s32.totalorder %s10_s6, 0 }",
    "{ %12 = sbr.rel (%p11_p1) target bundleno = 17 (0x11), region = 3 }",
    *DELAY,
    "{ %v1_v0 = vadd.f32 %v2_v0, %v3_v0 }",
    "{ %v4_v0 = vmatmul.mubr.f32.gmra.mxu0 %v1_v0 }",
    "{}",
    "{ %20 = dma.hbm_to_vmem [thread:$0]  /*hbm=*/%s30_s7, /*size_in_granules=*/64, "
    "/*vmem=*/%s31_s8, /*dst_syncflagno=*/[#allocation3] }",
    "{}",
    "{ %s9_s5 = sadd.s32 1, %s8_s5 }",
    "{ %p13_p2 = scmp.ge.s32.totalorder %s9_s5, 7 /* loop exit test */ }",
    "{ %14 = sbr.rel (!%p13_p2) target bundleno = 4 (0x4), region = 9 }",
    *DELAY,
    "{ %15 = vsyncadd [#allocation3], 4294967264 }",
    labels={4: "LB", 17: "PF"},
)


def counts(text, operands=None):
    return execute(parse_bundles(text, "toy"), "toy", operands)


def test_a_loop_runs_as_often_as_its_exit_test_says():
    execution = counts(LOOP, {0: [1] * 7})
    assert execution.counts[0] == execution.counts[-1] == 1
    assert set(execution.counts[4:24]) == {7}


@pytest.mark.parametrize("table", [[0] * 7, [1, 0, 0, 2, 0, 0, 3], [1] * 7], ids=str)
def test_a_predicated_region_runs_where_the_table_asks_for_it(table):
    execution = counts(LOOP, {0: table})
    wanted = sum(entry != 0 for entry in table)
    assert set(execution.counts[12:17]) == {wanted}
    assert set(execution.counts[17:20]) == {7}
    assert execution.read_bytes == wanted * 64 * 32
    assert execution.written_bytes == 0
    assert execution.assumed_regions == execution.assumed_dmas == 0


def test_without_the_table_the_region_counts_as_taken_and_is_reported():
    execution = counts(LOOP)
    assert set(execution.counts[12:17]) == {7}
    assert execution.assumed_regions == 1


def test_a_table_too_short_is_unknown_and_never_read_past_its_end():
    execution = counts(LOOP, {0: [0] * 5})
    assert set(execution.counts[12:17]) == {2}
    assert execution.assumed_regions == 1


def test_a_loop_whose_exit_is_not_known_is_an_error():
    unknown = LOOP.replace("sadd.s32 1, %s8_s5", "spop %99")
    with pytest.raises(CompiledFormatError, match="trip count is not known"):
        counts(unknown, {0: [1] * 7})


def test_values_spilled_to_scalar_memory_come_back():
    spilled = LOOP.replace(
        "{ %s9_s5 = sadd.s32 1, %s8_s5 }",
        "{ %s90_s5 = sadd.s32 1, %s8_s5  ;;  %91 = sst [smem:[#allocation9_spill]] %s90_s5  ;;  "
        "%s9_s5 = sld [smem:[#allocation9_spill]] }",
    )
    assert set(counts(spilled, {0: [1] * 7}).counts[4:24]) == {7}


def test_negative_immediates_are_two_complements():
    down = LOOP.replace("%s7_s5 = smov 0", "%s7_s5 = smov 6").replace(
        "sadd.s32 1, %s8_s5", "sadd.s32 4294967295, %s8_s5"
    )
    down = down.replace("scmp.ge.s32.totalorder %s9_s5, 7", "scmp.lt.s32.totalorder %s9_s5, 0")
    assert set(counts(down, {0: [1] * 7}).counts[4:24]) == {7}


def test_a_loop_that_never_ends_is_an_error(monkeypatch):
    monkeypatch.setattr("k3bench.compiled.tpu.control.MAX_BLOCK_EXECUTIONS", 10_000)
    endless = LOOP.replace("sadd.s32 1, %s8_s5", "sadd.s32 0, %s8_s5")
    with pytest.raises(CompiledFormatError, match="does not end"):
        counts(endless, {0: [1] * 7})


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("0x5  ", "0x6  ", "bundle 0x5 is missing"),
        ("LB :", "ZZ :", "unknown label 'ZZ'"),
        ("sbr.rel (%p11_p1) target bundleno = 17", "sbr.ind %s99_s9, 17", "without a fixed target"),
        ("{ %v1_v0 = vadd", "{ <<new>> = vadd", "not an instruction"),
        ("bundleno = 17 ", "bundleno = 99 ", "past the last bundle"),
        ("bundleno = 17 ", "bundleno = 9 ", "delay slots"),
    ],
    ids=["address", "label", "computed branch", "instruction", "target", "delay slots"],
)
def test_a_changed_schedule_format_is_one_clear_error(old, new, message):
    text = LOOP.replace(old, new, 1)
    assert text != LOOP
    with pytest.raises(CompiledFormatError, match=message):
        counts(text)


def test_an_empty_schedule_is_an_error():
    with pytest.raises(CompiledFormatError, match="no bundles"):
        parse_bundles("nothing here\n", "toy")


HEADER = """== CAPACTIY:
MXU, XLU, VALU, VPOP, EUP, VLOAD, VLOAD:FILL, VSTORE, VSTORE:SPILL, SALU
    2     2     4     2     1     3     3     2     2     2
== UTILIZATION:
"""


def utilization(rows: int, row: str = "0 0 1 0 0 0 2 0 1 0") -> str:
    return HEADER + "\n".join([row] * rows) + "\n"


def test_utilization_rows_are_read_in_order():
    rows = parse_utilization(HEADER + "1 0 0 0 0 0 0 0 0 2\n0 0 4 0 0 0 0 0 0 0\n", SLOTS, "toy")
    assert rows.tolist() == [[1, 0, 0, 0, 0, 0, 0, 0, 0, 2], [0, 0, 4, 0, 0, 0, 0, 0, 0, 0]]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("VLOAD:FILL", "VLOAD:REFILL", "columns are"),
        ("  4  ", "  8  ", "states capacities"),
        ("0 0 1 0", "0 0 x 0", "not ten integers"),
        ("0 0 1 0", "0 0 1", "not ten integers"),
        ("0 0 1 0", "0 0 5 0", "more slots than there are"),
        ("== UTILIZATION:", "== USE:", "another layout"),
    ],
    ids=["column", "capacity", "word", "short row", "over capacity", "section"],
)
def test_a_changed_utilization_format_is_one_clear_error(old, new, message):
    with pytest.raises(CompiledFormatError, match=message):
        parse_utilization(utilization(2).replace(old, new), SLOTS, "toy")


def test_figures_are_weighted_by_how_often_bundles_run():
    bundles = len(parse_bundles(LOOP, "toy"))
    figures = analyse("toy", LOOP, utilization(bundles), SLOTS, {0: [1, 0, 0, 0, 0, 0, 1]})
    outside, in_loop, in_region = 5, 15, 5  # bundles
    assert figures.cycles == outside + 7 * in_loop + 2 * in_region
    # Delay slots and empty bundles; a phi and an operand's name (bundles 4 and 0) issue nothing.
    assert figures.stall_cycles == 7 * (8 + 1) + 2 * 2 + 1
    assert figures.trips == 7
    assert figures.slot_uses["VALU"] == figures.spill_stores == figures.cycles
    assert figures.spill_fills == 2 * figures.cycles
    assert figures.slot_shares(SLOTS)["VALU"] == 0.25
    assert sum(figures.category_cycles.values()) == pytest.approx(figures.cycles)
    assert figures.category_cycles["mxu"] == 2.0
    assert figures.category_cycles["stall"] == figures.stall_cycles


def test_dumps_that_do_not_fit_each_other_are_an_error():
    with pytest.raises(CompiledFormatError, match="24 bundles in the schedule, 3 in the"):
        text = "\n".join(line for line in LOOP.splitlines()[:-1])
        analyse("toy", text, utilization(3), SLOTS)


def test_a_comment_changes_no_fingerprint_and_an_instruction_does():
    rows = utilization(len(parse_bundles(LOOP, "toy")))

    def digest(text):
        return analyse("toy", text, rows, SLOTS, {0: [1] * 7}).schedule_sha256

    assert digest(LOOP) == digest(LOOP.replace("loop exit test", "another word"))
    assert digest(LOOP) != digest(LOOP.replace("vadd.f32", "vmul.f32"))


@pytest.mark.parametrize(
    ("opcode", "expected"),
    [
        ("vmatmul.mubr.f32.gmra.mxu0", "mxu"),
        ("vmatpush3.xpose.msra.mxu1", "mxu"),
        ("vpop.f32.mrf.mxu0", "mxu"),
        ("vadd.f32", "vector"),
        ("vpow2.f32", "vector"),
        ("vpop.eup", "vector"),
        ("vadd.xlane.f32.xlu0", "vector"),
        ("vstv", "vector"),
        ("vxpose.xlu0.b32.start", "layout"),
        ("vrot.slane", "layout"),
        ("vpop.trf.xlu0", "layout"),
        ("vld", "memory"),
        ("vst.msk", "memory"),
        ("dma.hbm_to_vmem", "memory"),
        ("sadd.s32", "other"),
        ("sphi", None),
    ],
)
def test_operations_have_the_category_of_what_they_do(opcode, expected):
    assert category(opcode) == expected


def test_a_bundle_is_shared_by_its_vector_work_and_scalar_work_counts_only_alone():
    bundles = parse_bundles(
        listing(
            "{ %v1_v0 = vadd.f32 %v2_v0, %v3_v0  ;;  %v4_v1 = vld [vmem:[%s1_s0]]  ;;  "
            "%s5_s0 = sadd.s32 1, %s6_s0 }",
            "{ %s7_s0 = sadd.s32 1, %s5_s0 }",
            "{}",
        ),
        "toy",
    )
    shares = bundle_shares(bundles)
    assert np.allclose(shares.sum(axis=1), 1.0)
    by_name = [dict(zip(CATEGORIES, row, strict=True)) for row in shares]
    assert by_name[0]["vector"] == by_name[0]["memory"] == 0.5
    assert by_name[1]["other"] == by_name[2]["stall"] == 1.0
