"""One body of tests for every prefill implementation, and what tells the four forms apart."""

import dataclasses

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from mla_devices import DEVICES, HALF, INTERPRETED, examples, on_devices, runs_here, tensors_of

from mla_rocm import (
    PREFILL_IMPLEMENTATIONS,
    MlaDecodeInputs,
    MlaPrefillCase,
    make_prefill_inputs,
    max_abs_error,
    reference_decode,
    reference_prefill,
    tiled_attention,
    tolerance_for,
)
from mla_rocm.inputs import poison_prefill_inputs
from mla_rocm.prefill_torch import attend_absorbed, attend_decompressed, bind_chunked
from mla_rocm.prefill_triton import bind_prefill

CASES = [
    *(
        MlaPrefillCase((5, 20, 0, 21, 140), (0, 7, 64, 140, 21), dtype=dtype)
        for dtype in ("float32", "float16", "bfloat16")
    ),
    *(
        MlaPrefillCase((9, 33), (64, 200), page_size=page, table=table, dtype="float32")
        for page in (1, 16, 64)
        for table in ("contiguous", "shuffled", "shared")
    ),
    *(
        MlaPrefillCase((20, 35), (0, 70), heads=heads, dtype="float32")
        for heads in (1, 3, 9, 63, 126)
    ),
    MlaPrefillCase((1,), (0,), dtype="float32"),
    MlaPrefillCase((1,), (300,), dtype="float32"),
    MlaPrefillCase((0, 0), (5, 0), dtype="float32"),
    MlaPrefillCase((130, 129), dtype="float32"),  # across a tile of queries
    MlaPrefillCase((300,), (700,), dtype="float32"),  # across a tile of keys
    MlaPrefillCase((512,), (512,), dtype="bfloat16"),
]

# The same edges for Triton's interpreter, which takes about 20 ms a tile and head.
INTERPRETED_CASES = [
    *(
        MlaPrefillCase((5, 20, 0, 21, 140), (0, 7, 64, 140, 21), heads=1, dtype=dtype)
        for dtype in ("float32", "float16")
    ),
    MlaPrefillCase((9, 33), (64, 70), heads=1, page_size=1, table="shared", dtype="float32"),
    MlaPrefillCase((9, 33), (64, 70), heads=1, page_size=16, dtype="float32"),
    MlaPrefillCase((1,), (0,), heads=3, dtype="float32"),
    MlaPrefillCase((1,), (300,), heads=1, dtype="float32"),
    MlaPrefillCase((0, 0), (5, 0), dtype="float32"),
    MlaPrefillCase((130, 129), heads=1, dtype="float32"),
    MlaPrefillCase((2,), (9,), heads=63, dtype="float32"),
]


def _runnable(device):
    return [
        pytest.param(name, case, device, id=f"{name}-{case.id}-{device}")
        for name, implementation in PREFILL_IMPLEMENTATIONS.items()
        for case in (INTERPRETED_CASES if INTERPRETED else CASES)
        if runs_here(implementation, case, device)
    ]


# Heads of tests that are not about heads: each costs the interpreter a tenth of a second a tile.
HEADS = 1 if INTERPRETED else 12
EVERY_CASE = [param for device in DEVICES for param in _runnable(device)]
HERE = on_devices(PREFILL_IMPLEMENTATIONS, MlaPrefillCase((64,), dtype="float32"))
EVERY_IMPLEMENTATION = pytest.mark.parametrize(("name", "device"), HERE)
torch_forms = pytest.mark.skipif(INTERPRETED, reason="about the torch forms, not Triton kernels")
# Of the torch forms by their names; the Triton forms carry the same names.
FAMILY = "triton" if INTERPRETED else "torch"


def test_every_implementation_runs_most_cases():
    assert HERE
    for name, _ in HERE:
        assert sum(param.values[0] == name for param in EVERY_CASE) >= len(INTERPRETED_CASES) // 2


@pytest.mark.parametrize(("name", "case", "device"), EVERY_CASE)
def test_it_agrees_with_the_reference_on_poisoned_inputs(name, case, device):
    inputs = poison_prefill_inputs(make_prefill_inputs(case, device))
    before = {key: value.clone() for key, value in tensors_of(inputs).items()}
    bound = PREFILL_IMPLEMENTATIONS[name].bind(inputs)
    outputs = bound.fn()

    reference = reference_prefill(inputs)
    assert max_abs_error(outputs, reference) <= tolerance_for(case.dtype).max_abs_error
    assert outputs.o.shape == (case.tokens, case.heads, 128)
    assert outputs.o.dtype == getattr(torch, case.dtype)
    assert outputs.lse.shape == (case.tokens, case.heads)
    assert outputs.lse.dtype == torch.float32

    assert bound.executed_tokens >= case.tokens
    if not INTERPRETED:  # one program after the other: the second run cannot differ
        again = bound.fn()
        assert torch.equal(outputs.o, again.o) and torch.equal(outputs.lse, again.lse)
    for key, value in tensors_of(inputs).items():
        assert torch.equal(value.view(torch.uint8), before[key].view(torch.uint8)), (
            f"{key} was written to"
        )


@EVERY_IMPLEMENTATION
@settings(max_examples=examples(20), deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 90)), min_size=1, max_size=4),
    page_size=st.sampled_from([1, 16, 64]),
    heads=st.sampled_from([1, 3]),
    seed=st.integers(0, 100),
)
def test_any_lengths_and_prefixes_agree_with_the_reference(
    name, device, lengths, page_size, heads, seed
):
    new, prefix = zip(*lengths, strict=True)
    case = MlaPrefillCase(new, prefix, heads, "float32", seed, page_size)
    assume(runs_here(PREFILL_IMPLEMENTATIONS[name], case, device))
    inputs = poison_prefill_inputs(make_prefill_inputs(case, device))
    outputs = PREFILL_IMPLEMENTATIONS[name].bind(inputs).fn()
    error = max_abs_error(outputs, reference_prefill(inputs))
    assert error <= tolerance_for("float32").max_abs_error


@EVERY_IMPLEMENTATION
def test_future_tokens_do_not_change_the_past(name, device):
    inputs = make_prefill_inputs(
        MlaPrefillCase((200, 50), (30, 0), heads=HEADS, dtype=HALF), device
    )
    expected = PREFILL_IMPLEMENTATIONS[name].bind(inputs).fn()
    latent_kv, q = inputs.latent_kv.clone(), inputs.q.clone()
    latent_kv[120:] *= -3.0
    q[120:] += 1.0
    changed = dataclasses.replace(inputs, latent_kv=latent_kv, q=q)
    outputs = PREFILL_IMPLEMENTATIONS[name].bind(changed).fn()
    assert torch.equal(outputs.o[:120], expected.o[:120])
    assert torch.equal(outputs.lse[:120], expected.lse[:120])
    assert not torch.equal(outputs.o[120:], expected.o[120:])


@EVERY_IMPLEMENTATION
def test_the_first_token_without_a_prefix_attends_only_itself(name, device):
    inputs = make_prefill_inputs(MlaPrefillCase((3,), heads=HEADS, dtype="float32"), device)
    outputs = PREFILL_IMPLEMENTATIONS[name].bind(inputs).fn()
    value = torch.einsum("l,hlv->hv", inputs.latent_kv[0, :512], inputs.w_uv)
    torch.testing.assert_close(outputs.o[0], value, rtol=1e-4, atol=1e-4)


@EVERY_IMPLEMENTATION
def test_the_rotary_part_counts(name, device):
    inputs = make_prefill_inputs(MlaPrefillCase((64,), (64,), heads=HEADS, dtype=HALF), device)
    latent_kv = inputs.latent_kv.clone()
    latent_kv[:, 512:] = 0
    implementation = PREFILL_IMPLEMENTATIONS[name]
    without = implementation.bind(dataclasses.replace(inputs, latent_kv=latent_kv)).fn()
    assert max_abs_error(without, implementation.bind(inputs).fn()) > 0.5


@pytest.mark.parametrize("device", DEVICES)
def test_absorbed_equals_decompressed(device):
    inputs = make_prefill_inputs(
        MlaPrefillCase((140, 21), (64, 0), heads=HEADS, dtype="float32"), device
    )
    absorbed = PREFILL_IMPLEMENTATIONS[f"{FAMILY}_absorbed"].bind(inputs).fn()
    decompressed = PREFILL_IMPLEMENTATIONS[f"{FAMILY}_decompressed"].bind(inputs).fn()
    assert max_abs_error(absorbed, decompressed) < 5e-5


@pytest.mark.parametrize("device", DEVICES)
def test_one_new_token_is_an_absorbed_decode_step(device):
    inputs = make_prefill_inputs(MlaPrefillCase((1,), (139,), heads=HEADS, dtype="float32"), device)
    prefill = PREFILL_IMPLEMENTATIONS[f"{FAMILY}_absorbed"].bind(inputs).fn()
    position = inputs.block_table[0, 139 // 64].item(), 139 % 64
    cache = inputs.kv_cache.clone()
    cache[position] = inputs.latent_kv[0]
    q_latent = torch.einsum("hn,hnl->hl", inputs.q[0, :, :128], inputs.w_uk)
    decode = reference_decode(
        MlaDecodeInputs(
            inputs.geometry,
            torch.cat([q_latent, inputs.q[0, :, 128:]], -1)[None],
            cache,
            inputs.block_table,
            inputs.prefix_lens + 1,
        )
    )
    o = torch.einsum("hl,hlv->hv", decode.o[0], inputs.w_uv)
    torch.testing.assert_close(prefill.o[0], o, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(prefill.lse[0], decode.lse[0], rtol=1e-4, atol=1e-4)


# Chunks.


@torch_forms
@pytest.mark.parametrize("form", [attend_decompressed, attend_absorbed], ids=lambda f: f.__name__)
@pytest.mark.parametrize("chunk_tokens", [1, 7, 32, 39, 40, 1000])
@pytest.mark.parametrize("prefix", [0, 35], ids=["no-prefix", "prefix-35"])
def test_any_chunk_size_in_either_form_gives_the_same_answer(form, chunk_tokens, prefix):
    case = MlaPrefillCase((40, 3), (prefix, 2), heads=2, dtype="float32")
    inputs = poison_prefill_inputs(make_prefill_inputs(case))
    outputs = bind_chunked(inputs, form, chunk_tokens).fn()
    error = max_abs_error(outputs, reference_prefill(inputs))
    assert error <= tolerance_for("float32").max_abs_error


TRITON_HERE = sorted({device for name, device in HERE if name.startswith("triton")})


@pytest.mark.skipif(not TRITON_HERE, reason="no GPU for Triton kernels, and not interpreted")
@pytest.mark.parametrize("form", ["chunked_decompressed", "chunked_absorbed"])
@pytest.mark.parametrize("chunk_tokens", [16, 33])
def test_any_chunk_size_in_either_triton_form_gives_the_same_answer(form, chunk_tokens):
    case = MlaPrefillCase((40, 3), (35, 2), heads=1, dtype="float32")
    inputs = poison_prefill_inputs(make_prefill_inputs(case, TRITON_HERE[0]))
    outputs = bind_prefill(inputs, form=form, chunk_tokens=chunk_tokens).fn()
    error = max_abs_error(outputs, reference_prefill(inputs))
    assert error <= tolerance_for("float32").max_abs_error


@torch_forms
@pytest.mark.parametrize(
    ("name", "widths"),
    [
        ("torch_decompressed", {192}),
        ("torch_absorbed", {576}),
        ("torch_chunked_decompressed", {192}),
        ("torch_chunked_absorbed", {192, 576}),
    ],
)
def test_each_form_scores_at_the_width_it_is_named_for(name, widths, monkeypatch):
    seen = set()
    attend = tiled_attention.attend

    def spy(q, k, v, scale, first_position):
        seen.add(q.shape[-1])
        assert (k.shape[-1], v.shape[-1]) in {(192, 128), (576, 512)}
        return attend(q, k, v, scale, first_position)

    monkeypatch.setattr("mla_rocm.prefill_torch.attend", spy)
    inputs = make_prefill_inputs(MlaPrefillCase((20,), (30,), heads=2))
    PREFILL_IMPLEMENTATIONS[name].bind(inputs).fn()
    assert seen == widths


@torch_forms
@pytest.mark.parametrize("name", [name for name in PREFILL_IMPLEMENTATIONS if "torch" in name])
def test_no_score_matrix_is_larger_than_a_tile(name, monkeypatch):
    sizes = []
    product = tiled_attention.bmm_fp32

    def spy(a, b):
        result = product(a, b)
        sizes.append(result.numel())
        return result

    monkeypatch.setattr(tiled_attention, "bmm_fp32", spy)
    inputs = make_prefill_inputs(MlaPrefillCase((700,), (900,), heads=2, dtype="float32"))
    PREFILL_IMPLEMENTATIONS[name].bind(inputs).fn()
    rows, keys = tiled_attention.TILES["cpu"]
    assert sizes and max(sizes) <= rows * max(keys, 512)
    assert max(sizes) < 2 * 700 * 1600


@torch_forms
def test_attention_over_no_keys_is_zero_and_minus_infinity():
    q = torch.ones(1, 2, 3, 8)
    o, lse = tiled_attention.attend(q, torch.ones(1, 0, 8), torch.ones(1, 0, 4), 1.0, None)
    assert o.shape == (1, 2, 3, 4) and (o == 0).all()
    assert (lse == float("-inf")).all()
