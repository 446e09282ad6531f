"""HLO text: which operations run, how often, and what of them lies in HBM."""

import pytest

from k3bench.compiled.errors import CompiledFormatError
from k3bench.compiled.tpu.hlo import Module, parse_arrays, scoped_vmem_bytes

MODULE = """HloModule jit_toy, is_scheduled=true

%fused (p.1: f32[8,128]) -> f32[8,128] {
  %p.1 = f32[8,128]{1,0:T(8,128)} parameter(0)
  ROOT %add.1 = f32[8,128]{1,0:T(8,128)} add(%p.1, %p.1)
}

%condition (c: (s32[], f32[8,128])) -> pred[] {
  %c = (s32[], f32[8,128]{1,0}) parameter(0)
  %counter = s32[] get-tuple-element(%c), index=0
  %limit = s32[] constant(12)
  ROOT %less = pred[] compare(%counter, %limit), direction=LT
}

%body (b: (s32[], f32[8,128])) -> (s32[], f32[8,128]) {
  %b = (s32[], f32[8,128]{1,0}) parameter(0)
  %value = f32[8,128]{1,0:T(8,128)S(1)} get-tuple-element(%b), index=1
  %inner = f32[8,128]{1,0:T(8,128)S(1)} fusion(%value), kind=kLoop, calls=%fused, backend_config={"window_config":{"estimated_cycles":"100"}}
  ROOT %out = (s32[], f32[8,128]{1,0}) tuple(%value, %inner)
}

ENTRY %main (x.1: f32[1000,24], t.1: s32[6]) -> f32[1000,24] {
  %x.1 = f32[1000,24]{1,0:T(8,128)} parameter(0), sharding={replicated}
  %t.1 = s32[6]{0:T(128)} parameter(1)
  %copy.1 = s32[6]{0:T(128)S(6)} copy(%t.1)
  %start = (f32[1000,24]{1,0:T(8,128)S(1)}, f32[1000,24]{1,0:T(8,128)}, u32[]{:S(2)}) copy-start(%x.1)
  %done = f32[1000,24]{1,0:T(8,128)S(1)} copy-done(%start)
  %kernel.1 = (f32[8,128]{1,0:T(8,128)}, /*index=1*/bf16[16,128]{1,0:T(8,128)(2,1)S(1)}) custom-call(%copy.1, %done), custom_call_target="tpu_custom_call", backend_config={"custom_call_config":{"body":"AB{C}"}}
  %first = f32[8,128]{1,0:T(8,128)} get-tuple-element(%kernel.1), index=0
  %zero = s32[] constant(0)
  %init = (s32[], f32[8,128]{1,0}) tuple(%zero, %first)
  %loop = (s32[], f32[8,128]{1,0}) while(%init), condition=%condition, body=%body
  ROOT %last = f32[1000,24]{1,0:T(8,128)} fusion(%done), kind=kLoop, calls=%fused
}
"""  # noqa: E501


def operations(text=MODULE):
    return {operation.name: operation for operation in Module(text).operations()}


def test_only_what_runs_is_counted_and_loop_bodies_as_often_as_they_run():
    runs = {name: operation.runs for name, operation in operations().items()}
    assert runs == {"copy.1": 1, "start": 1, "kernel.1": 1, "inner": 12, "last": 1}


def test_pallas_kernels_are_told_from_xla_ops():
    assert [name for name, op in operations().items() if op.is_mosaic] == ["kernel.1"]


def test_hbm_bytes_are_physical_and_leave_out_vmem_and_scalar_memory():
    bytes_of = {name: operation.hbm_bytes for name, operation in operations().items()}
    padded = 1000 * 128 * 4  # 24 lanes padded to 128
    assert bytes_of["start"] == padded  # read from HBM, written to VMEM
    assert bytes_of["last"] == padded  # its operand is in VMEM
    assert bytes_of["inner"] == 0
    assert bytes_of["kernel.1"] == 8 * 128 * 4
    assert bytes_of["copy.1"] == 128 * 4


def test_a_slice_moves_its_piece_and_not_the_whole_operand():
    text = MODULE.replace(
        "  %zero = s32[] constant(0)\n",
        "  %zero = s32[] constant(0)\n"
        "  %slice-start = ((f32[1000,24]{1,0:T(8,128)}), f32[8,24]{1,0:T(8,128)S(1)}, "
        "s32[]{:S(2)}) slice-start(%x.1), slice={[0:8], [0:24]}\n"
        "  %slice-done = f32[8,24]{1,0:T(8,128)S(1)} slice-done(%slice-start)\n",
    )
    found = operations(text)
    assert found["slice-start"].hbm_bytes == 8 * 128 * 4  # read from HBM, written to VMEM
    assert "slice-done" not in found


def test_an_operand_that_is_a_copied_parameter_is_traced_to_its_number():
    assert operations()["kernel.1"].parameters == {0: 1, 1: 0}


def test_estimates_are_kept_where_the_compiler_gives_them():
    assert operations()["inner"].estimated_cycles == 100
    assert operations()["last"].estimated_cycles is None


def test_a_known_trip_count_is_taken():
    known = MODULE.replace(
        "body=%body", 'body=%body, backend_config={"known_trip_count":{"n":"3"}}'
    )
    assert operations(known)["inner"].runs == 3


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("constant(12)", "parameter(1)", "trip count of loop is not known"),
        ("constant(0)", "constant(4)", "trip count of loop is not known"),
        ("direction=LT", "direction=NE", "trip count of loop is not known"),
        ("ENTRY %main", "%main", "no entry computation"),
        ("while(%init), condition=%condition, body=%body", "conditional(%init)", "conditional"),
        ("bf16[16,128]", "weird[16,128]", "unknown element type 'weird'"),
    ],
    ids=["dynamic limit", "other start", "other test", "no entry", "conditional", "dtype"],
)
def test_what_is_not_understood_is_one_clear_error(old, new, message):
    assert old in MODULE
    with pytest.raises(CompiledFormatError, match=message):
        operations(MODULE.replace(old, new))


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ("f32[24]{0:T(128)}", 512),
        ("bf16[1,64,24,128]{3,2,1,0:T(8,128)(2,1)}", 64 * 24 * 128 * 2),
        ("f32[1,64,24]{1,2,0:T(8,128)}", 24 * 128 * 4),
        ("pred[64]{0:T(512)(128)(4,1)}", 512),
        ("s32[]", 4),
        ("f8e4m3fn[16,128]{1,0}", 2048),
    ],
)
def test_physical_bytes_of_an_array(shape, expected):
    [array] = parse_arrays(shape)
    assert array.bytes == expected


def test_scoped_vmem_is_read_from_the_report():
    report = """<script> const DATA ={"hlo_breakdowns": {"k.1": {"blocks": [
      {"block_type": "SCOPED", "block_size": 10}, {"block_type": "HLO_TEMPORARY", "block_size": 7}
    ]}}}
    const other = 1; </script>"""
    assert scoped_vmem_bytes(report) == {"k.1": 10}


@pytest.mark.parametrize("report", ["", "const DATA =[1]", 'const DATA ={"a": 1}', "const DATA ={"])
def test_another_report_is_one_clear_error(report):
    with pytest.raises(CompiledFormatError, match="VMEM report"):
        scoped_vmem_bytes(report)
