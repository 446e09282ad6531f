"""Small AMD GPU assembly texts for the parser's tests, written by hand."""


def assembly(*lines, name="toy", vgpr=40, agpr=0, total=None, extra=""):
    """A text with one kernel whose body is ``lines``; labels end in a colon."""
    body = "\n".join(line if line.endswith(":") else f"\t{line}" for line in lines)
    total = (-(-vgpr // 4) * 4 + agpr if agpr else vgpr) if total is None else total
    return f"""\t.amdgcn_target "amdgcn-amd-amdhsa--gfx950"
\t.text
\t.globl\t{name}                             ; -- Begin function {name}
{name}:                                    ; @{name}
.Lfunc_begin0:
\t.file\t1 "/somewhere" "kernel.py"
\t.loc\t1 5 0
{body}
.Lfunc_end0:
{extra}; NumVgprs: {vgpr}
; Occupancy: 8
\t.section\t.debug_str,"MS",@progbits,1
\t.asciz\t"/somewhere"
\t.amdgpu_metadata
---
amdhsa.kernels:
  - .agpr_count:     {agpr}
    .max_flat_workgroup_size: 256
    .private_segment_fixed_size: 0
    .sgpr_count:     20
    .sgpr_spill_count: 0
    .symbol:         {name}.kd
    .vgpr_count:     {total}
    .vgpr_spill_count: 0
...
\t.end_amdgpu_metadata
"""


# A pipelined copy loop: the index of the next tile is loaded with this tile's data.
CARRIED = (
    "s_mov_b32 s0, 0",
    ".LBB0_1:",
    "s_waitcnt vmcnt(0)",
    "v_lshl_add_u64 v[4:5], v[2:3], 4, s[4:5]",
    "global_load_dword v2, v6, s[6:7]",
    "global_load_dwordx4 v[8:11], v[4:5], off",
    "v_add_u32_e32 v6, 4, v6",
    "s_add_i32 s0, s0, 1",
    "s_cmp_lt_i32 s0, s8",
    "s_cbranch_scc1 .LBB0_1",
    "s_endpgm",
)

# The same loop with the index waited for before the data can be asked for, and the data used.
DEPENDENT = (
    "s_mov_b32 s0, 0",
    ".LBB0_1:",
    "global_load_dword v2, v6, s[6:7]",
    "s_waitcnt vmcnt(0)",
    "v_lshl_add_u64 v[4:5], v[2:3], 4, s[4:5]",
    "global_load_dwordx4 v[8:11], v[4:5], off",
    "s_waitcnt vmcnt(0)",
    "v_pk_add_f32 v[12:13], v[8:9], v[12:13]",
    "v_add_u32_e32 v6, 4, v6",
    "s_add_i32 s0, s0, 1",
    "s_cmp_lt_i32 s0, s8",
    "s_cbranch_scc1 .LBB0_1",
    "s_endpgm",
)
