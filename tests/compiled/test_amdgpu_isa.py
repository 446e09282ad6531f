"""Assembly texts written by hand: registers, loops, serialised round trips, addresses, refusals."""

from fractions import Fraction

import pytest
from amdgpu_text import CARRIED, DEPENDENT, assembly

from k3bench.compiled.amdgpu.addresses import steady_accesses
from k3bench.compiled.amdgpu.figures import code_figures
from k3bench.compiled.amdgpu.isa import Instruction, code_sha256, parse, registers
from k3bench.compiled.amdgpu.issue import lds_cycles, mfma, simd_cycles
from k3bench.compiled.amdgpu.loops import find_loops, whole_pass
from k3bench.compiled.amdgpu.memory_ops import memory_operation
from k3bench.compiled.amdgpu.round_trips import serial_round_trips
from k3bench.compiled.amdgpu.targets import GFX942, GFX950
from k3bench.compiled.errors import CompiledFormatError


def figures_of(*lines, waves=4):
    return code_figures(parse(assembly(*lines)), waves=waves, wave_threads=64)


def one_loop(*lines):
    [loop] = find_loops(parse(assembly(*lines)))
    return loop


def loop_of(*body):
    """A loop around a body, with a counter of its own."""
    return (
        "s_mov_b32 s30, 0", ".LBB0_1:", *body, "s_add_i32 s30, s30, 1", "s_cmp_lt_i32 s30, s31",
        "s_cbranch_scc1 .LBB0_1", "s_endpgm",
    )  # fmt: skip


def test_registers_and_metadata_are_read():
    program = parse(assembly("s_endpgm", vgpr=250, agpr=90))
    assert (program.name, program.arch) == ("toy", "gfx950")
    assert (program.vgpr, program.agpr, program.sgpr) == (250, 90, 20)
    assert (program.scratch_bytes, program.occupancy, program.threads) == (0, 8, 256)


def test_operands_name_their_registers():
    assert registers("v[2:4]") == ("v2", "v3", "v4")
    assert registers("s7") == ("s7",)
    assert registers("-v12") == ("v12",)
    assert registers("vcc") == ("vcc",)
    assert registers("0x3f") == registers("off") == ()


def test_the_hash_sees_code_and_neither_paths_nor_lines():
    text = assembly(*CARRIED)
    moved = text.replace("/somewhere", "/elsewhere").replace(".loc\t1 5 0", ".loc\t1 9 3")
    assert code_sha256(moved) == code_sha256(text)
    assert code_sha256(text.replace("v_add_u32_e32 v6, 4, v6", "v_add_u32_e32 v6, 8, v6")) != (
        code_sha256(text)
    )
    assert code_sha256(text.replace(".sgpr_count:     20", ".sgpr_count:     21")) != (
        code_sha256(text)
    )


@pytest.mark.parametrize(
    ("lines", "trips"), [(CARRIED, 1), (DEPENDENT, 2)], ids=["carried index", "dependent index"]
)
def test_an_index_that_is_carried_saves_a_round_trip(lines, trips):
    found = figures_of(*lines)
    assert found.described.round_trips == trips
    assert found.described.index_loads == 1
    assert found.described.data_bytes == 16 * 256


def test_loads_that_travel_together_count_once_and_full_waits_each():
    load = "global_load_dwordx4 v[{}:{}], v[2:3], off offset:{}"
    loads = [load.format(8 + 4 * n, 11 + 4 * n, 16 * n) for n in range(3)]
    wait = "s_waitcnt vmcnt(0)"
    bump = "v_lshl_add_u64 v[2:3], v[2:3], 0, s[4:5]"
    together = one_loop(*loop_of(*loads, wait, bump))
    apart = one_loop(*loop_of(*(line for load in loads for line in (load, wait)), bump))
    assert serial_round_trips(together.iteration) == 1
    assert serial_round_trips(apart.iteration) == 3


def test_waits_that_leave_newer_loads_under_way_overlap_with_the_next_iteration():
    body = (
        "global_load_dwordx4 v[8:11], v[2:3], off",
        "s_waitcnt vmcnt({})",
        "v_lshl_add_u64 v[2:3], v[2:3], 0, s[4:5]",
    )
    trips = []
    for allowed in (0, 1, 3):
        lines = (body[0], body[1].format(allowed), body[2])
        trips.append(serial_round_trips(one_loop(*loop_of(*lines)).iteration))
    assert trips == [1, Fraction(1, 2), Fraction(1, 4)]


def test_a_loop_that_reloads_spilled_registers_pays_for_each_wait():
    body = ("scratch_load_dword v8, off, off offset:4", "s_waitcnt vmcnt(0)",
            "v_add_u32_e32 v9, v8, v9", "scratch_store_dword off, v9, off offset:8",
            "s_waitcnt vmcnt(0)", "scratch_load_dword v10, off, off offset:8",
            "s_waitcnt vmcnt(0)")  # fmt: skip
    found = figures_of(*loop_of(*body))
    assert found.described.round_trips == 3
    assert found.scratch_operations_in_loops == 3
    assert found.described.data_bytes == 0


def test_bytes_that_were_loaded_before_are_no_new_data():
    # The second address is the first one computed another way: 16 x (v2 + 1) = 16 x v2 + 16.
    body = (
        "v_lshlrev_b32_e32 v4, 4, v2",
        "buffer_load_dwordx4 v[8:11], v4, s[4:7], 0 offen offset:16",
        "v_add_u32_e32 v5, 1, v2",
        "v_mul_lo_u32 v5, v5, 16",
        "buffer_load_dwordx4 v[12:15], v5, s[4:7], 0 offen",
        "s_waitcnt vmcnt(0)",
        "v_add_u32_e32 v2, s9, v2",
    )
    found = figures_of(*loop_of(*body))
    assert found.described.repeated_loads == 1
    assert found.described.load_bytes == 2 * 16 * 256
    assert found.described.data_bytes == 16 * 256


def test_bytes_that_the_iteration_before_loaded_are_recognised():
    body = (
        "global_load_dwordx4 v[8:11], v2, s[4:5]",
        "global_load_dwordx4 v[12:15], v2, s[4:5] offset:64",
        "s_waitcnt vmcnt(0)",
        "v_add_u32_e32 v2, 64, v2",
    )
    accesses, _ = steady_accesses(one_loop(*loop_of(*body)).iteration)
    assert [access.repeated for access in accesses] == [True, False]


def test_a_mask_that_moves_an_offset_out_of_bounds_hides_nothing_in_a_full_iteration():
    # v9 holds 1 << 31, the offset that a masked buffer access takes.
    lines = (
        "v_bfrev_b32_e32 v9, 1",
        *loop_of(
            "v_cndmask_b32_e32 v4, v9, v2, vcc",
            "buffer_load_dwordx2 v[10:11], v4, s[4:7], 0 offen",
            "v_add_u32_e32 v5, 8, v2",
            "s_cselect_b32 s8, s9, 0x80000000",
            "v_cndmask_b32_e32 v5, v9, v5, vcc",
            "buffer_load_dwordx2 v[12:13], v5, s[4:7], 0 offen",
            "s_waitcnt vmcnt(0)",
            "v_add_u32_e32 v2, 16, v2",
        ),
    )
    loop = one_loop(*lines)
    assert loop.constants["v9"] == 1 << 31
    accesses, _ = steady_accesses(loop.iteration, constants=loop.constants)
    assert [access.same_line for access in accesses] == [True, True]
    opaque, _ = steady_accesses(loop.iteration)
    assert not all(access.same_line for access in opaque)


def test_a_stream_enters_a_new_line_for_every_128_bytes():
    body = ("buffer_load_dwordx2 v[10:11], v2, s[4:7], 0 offen", "s_waitcnt vmcnt(0)",
            "v_add_u32_e32 v2, {}, v2")  # fmt: skip
    found = []
    for step in (8, 64, 128, 256):
        path = one_loop(*loop_of(*body[:2], body[2].format(step))).iteration
        lines = [steady_accesses(path, iterations=n)[0][0].same_line for n in range(1, 17)]
        found.append(lines.count(False))
    # 16 iterations of 8, 64, 128 and 256 bytes.
    assert found == [1, 8, 16, 16]


def test_a_full_iteration_takes_the_path_that_loads():
    lines = (
        "s_mov_b32 s0, 0",
        ".LBB0_1:",
        "s_cbranch_vccnz .LBB0_3",
        "global_load_dwordx4 v[8:11], v[2:3], off",
        "s_branch .LBB0_4",
        ".LBB0_3:",
        *["v_mov_b32_e32 v8, 0"] * 20,
        ".LBB0_4:",
        "s_waitcnt vmcnt(0)",
        "s_cbranch_scc1 .LBB0_1",
        "s_endpgm",
    )
    names = [instruction.mnemonic for instruction in one_loop(*lines).iteration]
    assert "global_load_dwordx4" in names
    assert "v_mov_b32" not in names


def test_nested_loops_have_depths_and_the_inner_one_is_main():
    lines = (
        ".LBB0_1:", "s_nop 0", ".LBB0_2:", "global_load_dword v8, v[2:3], off",
        "s_waitcnt vmcnt(0)", "s_cbranch_scc1 .LBB0_2", "s_cbranch_scc0 .LBB0_1", "s_endpgm",
    )  # fmt: skip
    found = figures_of(*lines)
    assert [(loop.depth, loop.innermost) for loop, _ in found.loops] == [(1, False), (2, True)]
    assert found.main == 1


def test_a_kernel_without_loops_is_described_by_its_whole_pass():
    lines = (
        "s_load_dwordx2 s[4:5], s[0:1], 0x0",
        "s_waitcnt lgkmcnt(0)",
        "global_load_dword v2, v1, s[4:5]",
        "s_waitcnt vmcnt(0)",
        "global_store_dword v1, v2, s[4:5]",
        "s_endpgm",
    )
    found = figures_of(*lines)
    assert (found.main, found.loops) == (None, ())
    # Arguments, data, and the store that the end of the kernel waits for.
    assert found.described.round_trips == 3
    assert found.described.mix["scalar_load"] == 1


def test_direct_to_lds_loads_are_told_apart():
    body = (
        "buffer_load_dwordx4 v4, s[4:7], 0 offen lds",
        "buffer_load_dwordx4 v[8:11], v5, s[4:7], 0 offen",
        "s_waitcnt vmcnt(0)",
        "v_add_u32_e32 v4, 64, v4",
        "v_add_u32_e32 v5, 64, v5",
    )
    found = figures_of(*loop_of(*body)).described
    assert found.direct_to_lds_share == 0.5
    assert found.load_widths == {"16": 2}


@pytest.mark.parametrize(
    ("mnemonic", "shape", "flops", "cycles"),
    [
        ("v_mfma_f32_16x16x32_bf16", "16x16x32", 16_384, 16),
        ("v_mfma_f32_32x32x16_f16", "32x32x16", 32_768, 32),
        ("v_mfma_f32_16x16x16_bf16", "16x16x16", 8_192, 8),
    ],
)
def test_matrix_instructions_have_their_shape_and_their_share_of_the_peak(
    mnemonic, shape, flops, cycles
):
    instruction = Instruction(mnemonic, ("v[0:3]", "v[4:7]", "v[8:11]", "v[0:3]"), "")
    assert (mfma(instruction).shape, mfma(instruction).flops) == (shape, flops)
    assert simd_cycles(instruction, GFX950) == pytest.approx(cycles, rel=0.03)
    assert simd_cycles(instruction, GFX942) > simd_cycles(instruction, GFX950)


def test_lds_accesses_take_the_cycles_of_their_bytes():
    def cycles(mnemonic):
        return lds_cycles(Instruction(mnemonic, ("v0", "v1"), ""), GFX950)

    assert (cycles("ds_read_b128"), cycles("ds_read_b64_tr_b16")) == (8, 4)
    assert (cycles("ds_read2_b64"), cycles("ds_bpermute_b32")) == (8, 2)
    assert cycles("v_add_u32") == 0


def test_the_whole_pass_runs_from_the_entry_to_an_end():
    names = [instruction.mnemonic for instruction in whole_pass(parse(assembly(*DEPENDENT)))]
    assert names[0] == "s_mov_b32" and names[-1] == "s_endpgm"
    assert names.count("global_load_dword") == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "0 kernels in one amdgcn text"),
        (assembly("s_endpgm", total=47), "does not follow"),
        (assembly("s_endpgm").replace("; Occupancy: 8", ""), "Occupancy"),
        (assembly("s_endpgm").replace(".sgpr_count:     20", ""), "sgpr_count"),
        (assembly("s_endpgm").replace(".Lfunc_end0:", ""), "does not lie between"),
        (assembly("s_endpgm").replace(".amdgcn_target", ".target"), "amdgcn_target"),
        (assembly("s_setpc_b64 s[0:1]"), "s_setpc_b64 is not understood"),
        (assembly("s_wait_loadcnt 0x0", "s_endpgm"), "s_wait_loadcnt is not understood"),
        (assembly("s_branch .LBB0_9"), "which is no block"),
        (assembly("!!! ??"), "not an instruction"),
    ],
    ids=["empty", "registers", "occupancy", "sgpr", "no end", "no target", "indirect", "gfx12",
         "branch", "garbage"],
)  # fmt: skip
def test_what_is_not_understood_is_refused_by_name(text, message):
    with pytest.raises(CompiledFormatError, match=message):
        parse(text)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("global_load_monster v1, v2", "global_load_monster is not known"),
        ("ds_unheard_of v1, v2", "ds_unheard_of is not known"),
        ("v_mfma_f32_16x16x32_q7 v[0:3], v4, v5, 0", "v_mfma_f32_16x16x32_q7 is not known"),
        ("s_waitcnt 0x1234", "wait s_waitcnt 0x1234"),
    ],
    ids=["load", "lds", "mfma", "wait"],
)
def test_an_instruction_that_matters_and_is_not_known_is_refused(body, message):
    with pytest.raises(CompiledFormatError, match=message):
        figures_of(*loop_of(body))


def test_a_jump_into_the_middle_of_a_loop_is_refused():
    lines = (
        "s_cbranch_scc1 .LBB0_2", ".LBB0_1:", "s_nop 0", ".LBB0_2:", "s_nop 0",
        "s_cbranch_scc1 .LBB0_1", "s_endpgm",
    )  # fmt: skip
    with pytest.raises(CompiledFormatError, match="in its middle"):
        find_loops(parse(assembly(*lines)))


def test_stores_atomics_and_loads_say_what_they_move():
    def operation(mnemonic, operands, modifiers=""):
        return memory_operation(Instruction(mnemonic, operands, modifiers))

    store = operation("global_store_dwordx4", ("v1", "v[4:7]", "s[2:3]"), "offset:64")
    assert (store.is_load, store.lane_bytes, store.data) == (False, 16, ("v[4:7]",))
    assert store.address == ("v1", "s[2:3]", "offset:64")
    assert operation("global_load_lds_dwordx4", ("v[0:1]", "off")).to_lds
    assert not operation("global_atomic_add", ("v1", "v2", "s[0:1]")).is_load
    assert operation("global_atomic_add", ("v3", "v1", "v2", "s[0:1]"), "sc0").result == "v3"
    assert operation("v_add_u32", ("v1", "v2", "v3")) is None
    assert operation("buffer_wbl2", (), "sc1") is None
