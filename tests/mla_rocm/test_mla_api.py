"""The public functions: what they return, and one clear error for each bad argument."""

import re

import pytest
import torch

from mla_rocm import (
    DECODE_IMPLEMENTATIONS,
    PREFILL_IMPLEMENTATIONS,
    MlaArgumentError,
    MlaDecodeCase,
    MlaGeometry,
    MlaPrefillCase,
    Outputs,
    make_decode_inputs,
    make_prefill_inputs,
    max_abs_error,
    mla_decode,
    mla_prefill,
    reference_decode,
    reference_prefill,
    tolerance_for,
)
from mla_rocm.inputs import poison_decode_inputs, poison_prefill_inputs

DECODE = ("q", "kv_cache", "block_table", "seq_lens")
PREFILL = ("q", "latent_kv", "w_uk", "w_uv", "cu_seqlens")
PREFIX = ("kv_cache", "block_table", "prefix_lens")


def _decode_arguments(case=None, **changes):
    inputs = poison_decode_inputs(make_decode_inputs(case or MlaDecodeCase((5, 0, 140))))
    arguments = {name: getattr(inputs, name) for name in DECODE}
    return inputs, {**arguments, "geometry": inputs.geometry, **changes}


def _prefill_arguments(case=None, prefix=True, **changes):
    case = case or MlaPrefillCase((5, 0, 14), (0, 3, 65))
    inputs = poison_prefill_inputs(make_prefill_inputs(case))
    names = PREFILL + PREFIX if prefix else PREFILL
    arguments = {name: getattr(inputs, name) for name in names}
    return inputs, {**arguments, "geometry": inputs.geometry, **changes}


def _call(function, arguments):
    leading = DECODE if function is mla_decode else PREFILL
    rest = {name: value for name, value in arguments.items() if name not in leading}
    return function(*(arguments[name] for name in leading), **rest)


def _on_cpu(implementations, case):
    return ["auto", *(name for name, i in implementations.items() if i.can_run("cpu", case).ok)]


@pytest.mark.parametrize("implementation", _on_cpu(DECODE_IMPLEMENTATIONS, MlaDecodeCase((64,))))
def test_decode_by_name_and_by_auto_agrees_with_the_reference(implementation):
    inputs, arguments = _decode_arguments(implementation=implementation)
    outputs = Outputs(*_call(mla_decode, arguments))
    error = max_abs_error(outputs, reference_decode(inputs))
    assert error <= tolerance_for("bfloat16").max_abs_error


@pytest.mark.parametrize("implementation", _on_cpu(PREFILL_IMPLEMENTATIONS, MlaPrefillCase((64,))))
@pytest.mark.parametrize("prefix", [True, False], ids=["prefix", "no-prefix"])
def test_prefill_by_name_and_by_auto_agrees_with_the_reference(implementation, prefix):
    case = None if prefix else MlaPrefillCase((5, 0, 14))
    inputs, arguments = _prefill_arguments(case, prefix, implementation=implementation)
    outputs = Outputs(*_call(mla_prefill, arguments))
    error = max_abs_error(outputs, reference_prefill(inputs))
    assert error <= tolerance_for("bfloat16").max_abs_error


def test_other_widths_than_k3s_work():
    geometry = MlaGeometry(heads=5, latent=24, rope=8, nope=6, v_head_dim=10)
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(2, 5, 32, generator=generator)
    cache = torch.randn(4, 16, 32, generator=generator)
    table = torch.tensor([[3, 0], [1, 99]], dtype=torch.int32)
    lens = torch.tensor([30, 16], dtype=torch.int32)
    o, lse = mla_decode(q, cache, table, lens, geometry=geometry, num_kv_splits=3)
    assert o.shape == (2, 5, 24) and lse.shape == (2, 5)
    rows = cache[[3, 0]].flatten(0, 1)[:30]
    expected = (q[0] @ rows.T * 14**-0.5).softmax(-1) @ rows[:, :24]
    torch.testing.assert_close(o[0], expected, rtol=1e-4, atol=1e-5)


BAD_DECODE = {
    "q-2d": (lambda a: {"q": a["q"][0]}, "q has 2 dimensions"),
    "q-heads": (lambda a: {"q": a["q"][:, :11]}, r"q has shape (3, 11, 576): give (3, 12, 576)"),
    "q-width": (lambda a: {"q": a["q"][..., :512]}, "q has shape (3, 12, 512)"),
    "q-dtype": (lambda a: {"q": a["q"].double()}, "q has dtype float64: give one of float32"),
    "q-device": (lambda a: {"q": a["q"].to("meta")}, "q is on meta"),
    "empty-batch": (lambda a: {"q": a["q"][:0]}, "q has no sequences"),
    "cache-dtype": (lambda a: {"kv_cache": a["kv_cache"].half()}, "kv_cache has dtype"),
    "cache-device": (lambda a: {"kv_cache": a["kv_cache"].to("meta")}, "kv_cache is on meta"),
    "cache-2d": (lambda a: {"kv_cache": a["kv_cache"].flatten(0, 1)}, "kv_cache has 2 dimensions"),
    "cache-width": (lambda a: {"kv_cache": a["kv_cache"][..., :575]}, "kv_cache has shape"),
    "cache-strided": (
        lambda a: {"kv_cache": a["kv_cache"].repeat(1, 1, 2)[..., :576]},
        "kv_cache is not contiguous",
    ),
    "page-size": (
        lambda a: {"kv_cache": a["kv_cache"][:, :32].contiguous()},
        "pages of 32 tokens: give one of 1, 16, 64",
    ),
    "table-int64": (lambda a: {"block_table": a["block_table"].long()}, "block_table has dtype"),
    "table-rows": (lambda a: {"block_table": a["block_table"][:2]}, "block_table has 2 rows"),
    "table-1d": (lambda a: {"block_table": a["block_table"][0]}, "block_table has 1 dimensions"),
    "lens-int64": (lambda a: {"seq_lens": a["seq_lens"].long()}, "seq_lens has dtype torch.int64"),
    "lens-shape": (lambda a: {"seq_lens": a["seq_lens"][:2]}, "seq_lens has shape (2,)"),
    "lens-negative": (
        lambda a: {"seq_lens": torch.tensor([5, -1, 140], dtype=torch.int32)},
        "seq_lens[1] is -1",
    ),
    "lens-beyond": (
        lambda a: {"seq_lens": torch.tensor([5, 0, 193], dtype=torch.int32)},
        "seq_lens[2] is 193, but block_table holds 3 pages of 64 tokens: give 4 columns",
    ),
    "splits": (lambda a: {"num_kv_splits": 0}, "num_kv_splits is 0"),
    "splits-float": (lambda a: {"num_kv_splits": 2.0}, "num_kv_splits is 2.0"),
    "name": (lambda a: {"implementation": "fast"}, "implementation 'fast' is unknown: give auto"),
}


@pytest.mark.parametrize(("change", "message"), BAD_DECODE.values(), ids=BAD_DECODE)
def test_a_bad_decode_argument_is_named_in_one_line(change, message):
    _, arguments = _decode_arguments()
    with pytest.raises(MlaArgumentError, match=re.escape(message)) as caught:
        _call(mla_decode, {**arguments, **change(arguments)})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("page", [-1, -(2**31), 2**31 - 1, 12])
def test_a_page_in_use_outside_the_pool_is_refused_with_its_place(page):
    _, arguments = _decode_arguments()
    assert arguments["kv_cache"].shape[0] == 12
    arguments["block_table"][2, 1] = page
    with pytest.raises(MlaArgumentError, match=re.escape(f"block_table[2, 1] is {page}, in use")):
        _call(mla_decode, arguments)


BAD_PREFILL = {
    "q-width": (lambda a: {"q": a["q"][..., :128]}, "q has shape (19, 12, 128)"),
    "latent-tokens": (lambda a: {"latent_kv": a["latent_kv"][1:]}, "latent_kv has shape (18, 576)"),
    "uk-transposed": (lambda a: {"w_uk": a["w_uk"].mT}, "w_uk has shape (12, 512, 128)"),
    "uv-transposed": (lambda a: {"w_uv": a["w_uv"].mT}, "w_uv has shape (12, 128, 512)"),
    "uk-dtype": (lambda a: {"w_uk": a["w_uk"].float()}, "w_uk has dtype torch.float32"),
    "cu-int64": (lambda a: {"cu_seqlens": a["cu_seqlens"].long()}, "cu_seqlens has dtype"),
    "cu-scalar": (lambda a: {"cu_seqlens": a["cu_seqlens"][:1]}, "cu_seqlens has shape (1,)"),
    "cu-start": (
        lambda a: {"cu_seqlens": torch.tensor([1, 5, 5, 19], dtype=torch.int32)},
        "cu_seqlens[0] is 1",
    ),
    "cu-decreasing": (
        lambda a: {"cu_seqlens": torch.tensor([0, 6, 5, 19], dtype=torch.int32)},
        "cu_seqlens[2] is 5, below cu_seqlens[1] = 6",
    ),
    "cu-end": (
        lambda a: {"cu_seqlens": torch.tensor([0, 5, 5, 18], dtype=torch.int32)},
        "cu_seqlens ends at 18, q has 19 tokens",
    ),
    "prefix-partial": (lambda a: {"block_table": None}, "give all three, or none"),
    "prefix-lens": (lambda a: {"prefix_lens": a["prefix_lens"][:2]}, "prefix_lens has shape (2,)"),
    "prefix-beyond": (
        lambda a: {"prefix_lens": torch.tensor([0, 3, 129], dtype=torch.int32)},
        "prefix_lens[2] is 129",
    ),
    "prefix-page": (
        lambda a: {"block_table": torch.full_like(a["block_table"], 99)},
        "block_table[1, 0] is 99, in use",
    ),
}


@pytest.mark.parametrize(("change", "message"), BAD_PREFILL.values(), ids=BAD_PREFILL)
def test_a_bad_prefill_argument_is_named_in_one_line(change, message):
    _, arguments = _prefill_arguments()
    with pytest.raises(MlaArgumentError, match=re.escape(message)) as caught:
        _call(mla_prefill, {**arguments, **change(arguments)})
    assert "\n" not in str(caught.value)


def test_a_named_implementation_that_cannot_run_says_why():
    _, arguments = _decode_arguments(implementation="torch_dense", num_kv_splits=4)
    with pytest.raises(NotImplementedError, match="torch_dense: one softmax without splits"):
        _call(mla_decode, arguments)


def test_auto_passes_over_what_cannot_run_and_gives_every_reason_if_nothing_can(monkeypatch):
    from mla_rocm import Support

    def refuse(reason):
        return lambda platform, case: Support(False, reason)

    _, arguments = _decode_arguments()
    expected = _call(mla_decode, {**arguments, "implementation": "torch_dense"})
    implementations = list(DECODE_IMPLEMENTATIONS.values())
    for index, implementation in enumerate(implementations):
        _replace(monkeypatch, implementation, refuse(f"reason {index}"))
        if index == len(implementations) - 2:
            o, _ = _call(mla_decode, arguments)
            assert torch.equal(o, expected[0])
    with pytest.raises(NotImplementedError) as caught:
        _call(mla_decode, arguments)
    for index, implementation in enumerate(implementations):
        assert f"{implementation.name}: reason {index}" in str(caught.value)


def _replace(monkeypatch, implementation, can_run):
    import dataclasses

    monkeypatch.setitem(
        DECODE_IMPLEMENTATIONS,
        implementation.name,
        dataclasses.replace(implementation, can_run=can_run),
    )
