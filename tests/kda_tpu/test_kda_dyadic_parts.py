"""``dyadic`` but for its kernels: plans, solve, exponents, VMEM, fallbacks, lowering for a TPU."""

import dataclasses
import functools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kda_cases import ACTIVATED, BOUNDED, PROMISED, UNBOUNDED

from kda_tpu import IMPLEMENTATIONS, Bound, KdaCase, choose, input_shapes
from kda_tpu.dyadic import why_not
from kda_tpu.dyadic.exponents import DOWN, KEY, LANES, QUERY, STRIP
from kda_tpu.dyadic.order import after
from kda_tpu.dyadic.plan import ENDS, SEQUENCE, STARTS, TILE, TOKEN_START, VALID, plan
from kda_tpu.dyadic.solve import inverse
from kda_tpu.dyadic.vmem import MOST_VMEM_BYTES, Shape, vmem_bytes, vmem_limit
from kda_tpu.gate import LEAST_LOWER_BOUND, LOG2_E
from kda_tpu.ladder.stages import run, start_in_rounds, together
from kda_tpu.ladder.vmem import SCOPED_VMEM_BYTES

DIMS = {"heads": 8, "head_dim_k": 128, "head_dim_v": 128}
K3 = KdaCase((100, 20))


def bind(name: str, case: KdaCase, **choices) -> Bound:
    dims = {n: getattr(case, n) for n in DIMS}
    return IMPLEMENTATIONS[name].bind(case.lengths, case.gate, **dims, **choices)


# Which tiles a packing is made of.


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(st.integers(0, 300), st.integers(0, 33)), min_size=1, max_size=70))
def test_every_token_lies_in_one_tile_of_its_own_sequence_in_order(lengths):
    found = plan(lengths)
    ends = np.cumsum(lengths)
    covered = np.zeros(sum(lengths), int)
    for tiles, rows in ((found.long, TILE), (found.short, STRIP)):
        assert tiles.table.dtype == tiles.token_of_row.dtype == np.int32
        start, valid, whose = (tiles.field(f) for f in (TOKEN_START, VALID, SEQUENCE))
        token_of_row = tiles.token_of_row.reshape(tiles.count, rows)
        for tile in range(tiles.count):
            tokens = np.arange(start[tile], start[tile] + valid[tile])
            covered[tokens] += 1
            n = whose[tile]
            assert 0 <= valid[tile] <= rows
            assert (tokens >= ends[n] - lengths[n]).all() and (tokens < ends[n]).all()
            np.testing.assert_array_equal(token_of_row[tile, : valid[tile]], tokens)
            # What padding repeats is the tile's own last token.
            if valid[tile]:
                assert (token_of_row[tile, valid[tile] :] == tokens[-1]).all()
        # In the order of the tokens; a sequence's tiles together, all full but its last.
        assert (np.diff(whose) >= 0).all()
        np.testing.assert_array_equal(tiles.field(STARTS), np.diff(whose, prepend=-1) > 0)
        np.testing.assert_array_equal(tiles.field(ENDS), np.diff(whose, append=len(lengths)) > 0)
        assert (valid[tiles.field(ENDS) == 0] == rows).all()
        if sum(lengths):  # windows begin inside the array
            assert (start >= 0).all() and (start < sum(lengths)).all()
            assert (token_of_row >= 0).all() and (token_of_row < sum(lengths)).all()
    assert (covered == 1).all()
    is_long = np.array(lengths) > STRIP
    np.testing.assert_array_equal(np.unique(found.long.field(SEQUENCE)), np.flatnonzero(is_long))
    np.testing.assert_array_equal(found.short.field(SEQUENCE), np.flatnonzero(~is_long))


def test_how_a_sequence_is_cut_does_not_depend_on_its_neighbours():
    alone, among = plan((100,)).long, plan((33, 100, 7, 0)).long
    own = among.field(SEQUENCE) == 1
    np.testing.assert_array_equal(among.field(VALID)[own], alone.field(VALID))
    np.testing.assert_array_equal(among.field(TOKEN_START)[own] - 33, alone.field(TOKEN_START))


def test_padded_tokens_count_both_kinds_of_tiles():
    case = KdaCase((20, 0, 64, 65, 32), **DIMS)
    assert bind("dyadic", case).padded_tokens == 32 + 32 + 64 + 128 + 32


def test_the_same_configuration_binds_to_the_same_function_object():
    """For kernels of its own, where the shared body sees the ladder's."""
    one, two, gate = (
        bind("dyadic", KdaCase(lengths, **DIMS, gate=gate))
        for lengths, gate in (((20, 70), BOUNDED), ((70, 20), BOUNDED), ((20, 70), PROMISED))
    )
    assert one.fn is two.fn
    assert one.fn is not gate.fn
    assert jax.tree.map(np.shape, one.plan) == jax.tree.map(np.shape, two.plan)
    assert not any(isinstance(x, jax.Array) for x in jax.tree.leaves(one.plan))


# The solve.


@functools.cache
def solver():
    return jax.jit(lambda lower: run(inverse(lower)))


def solved(lower: np.ndarray) -> np.ndarray:
    """The inverses of [heads, R, R], by lanes as the kernel lays them; NaN where nothing counts."""
    heads, rows, _ = lower.shape
    strictly = np.tril(np.ones((rows, rows), bool), -1)
    lifted = np.where(strictly, 2.0**KEY * lower, np.nan)
    side_by_side = lifted.transpose(1, 0, 2).reshape(rows, heads * rows)
    found = np.asarray(solver()(jnp.asarray(side_by_side, jnp.float32)))
    return found.reshape(rows, heads, rows).transpose(1, 0, 2)


def exact_inverse(lower: np.ndarray) -> np.ndarray:
    return np.linalg.inv(np.eye(lower.shape[1]) + np.tril(lower, -1).astype(np.float64))


@pytest.mark.parametrize("rows", [STRIP, TILE])
@pytest.mark.parametrize("decay", [0.0, 0.1, 1.0], ids=lambda d: f"decay-{d}")
def test_the_inverse_of_drawn_keys_is_that_of_float64(rows, decay):
    """Keys of 128 channels and a decay a token, as the kernel meets them; NaN above the diagonal.

    What blocks are merged by is to 2^-16 of its terms at worst, a quarter of that in sums.
    """
    draw = np.random.default_rng(0)
    heads = LANES // rows
    k = draw.standard_normal((heads, rows, 128))
    k /= np.linalg.norm(k, axis=2, keepdims=True)
    beta = draw.random((heads, rows, 1))
    steps = np.arange(rows)
    L = beta * (k @ k.transpose(0, 2, 1)) * np.exp(-decay * (steps[:, None] - steps[None, :]))
    L = np.tril(L, -1).astype(np.float32)
    error = np.abs(solved(L) - exact_inverse(L)).max()
    assert error <= 2.0**-18 * np.abs(L).max()


@pytest.mark.parametrize("rows", [STRIP, TILE])
def test_the_inverse_for_one_token_repeated_is_exact(rows):
    """L all ones: the inverse is 1 on the diagonal and -1 below it. Powers of L reach 10^17."""
    L = np.tril(np.ones((LANES // rows, rows, rows), np.float32), -1)
    expected = np.broadcast_to(np.eye(rows) - np.eye(rows, k=-1), L.shape)
    np.testing.assert_array_equal(solved(L), expected)


@pytest.mark.parametrize("rows", [STRIP, TILE])
@pytest.mark.parametrize("beta", [0.1, 0.5, 0.9, 0.999])
def test_the_inverse_for_tokens_that_repeat_keeps_its_digits(rows, beta):
    """Heads that differ, so that blocks which stray into another's lanes are seen.

    A merged block is a sum of up to R / 2 equal terms, which do not all err alike.
    """
    heads = LANES // rows
    scales = beta * (1.0 - 0.05 * np.arange(heads))
    L = np.tril(np.ones((heads, rows, rows)), -1) * scales[:, None, None]
    assert np.abs(solved(L) - exact_inverse(L)).max() <= 2.0**-18 * rows / 2 * beta


# Exponents.


def test_the_factors_of_a_strip_lie_within_the_exponents_of_bf16():
    """In powers of two: G falls from a carry of up to 1 to the reach of 32 closed gates."""
    reach = math.ceil(STRIP * -LEAST_LOWER_BOUND * LOG2_E)
    least, end = -126, 127
    up = (DOWN - reach, DOWN + 1)
    columns = (-up[1], -up[0])
    scale = math.log2(128**-0.5)
    keys = tuple(x + KEY for x in up)
    queries = tuple(x + QUERY + scale for x in up)
    assert least <= columns[0] and columns[1] + 3 <= end  # |k| < 2^3
    assert columns[0] - 4 - 8 - 6 >= least  # the low half of a k of 2^-10
    assert keys[0] - 9 - 8 >= least and keys[1] + 3 <= end  # the low half of a beta k of 2^-9
    assert queries[0] - 6 - 8 >= least and queries[1] + 6 <= end  # and of a q of 2^-6
    # The steps between references, down to -231 in two: rows through 2^-DOWN, columns through
    # 2^(DOWN - 231), with two powers of two to spare.
    assert least <= -DOWN - max(KEY, QUERY)
    assert least <= DOWN - reach - 2
    assert least > -reach


# VMEM.


def test_k3_fits_the_default_scope_and_48_heads_say_what_they_want():
    k3 = Shape(24, 128, 128, TILE)
    for rows in (STRIP, TILE):
        shape = dataclasses.replace(k3, rows=rows)
        assert vmem_limit(shape, 2) is None and vmem_limit(shape, 4) is None
    wide = dataclasses.replace(k3, heads=48)
    wanted = vmem_limit(wide, 2)
    assert wanted == vmem_bytes(wide, 2)
    assert SCOPED_VMEM_BYTES < wanted <= MOST_VMEM_BYTES
    assert vmem_bytes(k3, 2) < vmem_bytes(k3, 4) < vmem_bytes(wide, 4)


def kernels_of(case: KdaCase) -> list:
    """The pallas_call equations of the traced program, in order."""
    bound = bind("dyadic", case)
    jaxpr = jax.make_jaxpr(bound.fn)(input_shapes(case), bound.plan)
    return [e for e in jaxpr.eqns if e.primitive.name == "pallas_call"]


@pytest.mark.parametrize("heads", [24, 48])
def test_each_kernel_asks_for_its_own_vmem(heads):
    case = KdaCase((70, 20), heads=heads)
    limits = [e.params["compiler_params"].vmem_limit_bytes for e in kernels_of(case)]
    assert limits == [vmem_limit(Shape(heads, 128, 128, rows), 2) for rows in (TILE, STRIP)]


def test_heads_beyond_vmem_are_refused_with_the_figure():
    assert why_not(BOUNDED, 48, 128, 128) is None
    assert re.fullmatch(r"128 heads want 1\d\d MiB of VMEM", why_not(BOUNDED, 128, 128, 128))


# Fallbacks, and who is chosen.

INSTEAD = {
    "unbounded": ({"gate": UNBOUNDED}, "unbounded gate has no lower bound"),
    "activated": ({"gate": ACTIVATED}, "activated gate has no lower bound"),
    "two-heads": ({"heads": 2}, "2 heads are no multiple of 8"),
    "head_dim_k-64": ({"head_dim_k": 64}, "head_dim_k 64 is no multiple of 128"),
    "head_dim_v-64": ({"head_dim_v": 64}, "head_dim_v 64 is no multiple of 128"),
    "too-many-heads": ({"heads": 128}, "MiB of VMEM"),
}


@pytest.mark.parametrize(("changes", "reason"), INSTEAD.values(), ids=INSTEAD)
def test_what_it_does_not_apply_to_runs_the_ladders_function_itself(changes, reason):
    case = KdaCase((70, 0, 20), **{**DIMS, **changes})
    ours, ladders = (bind(name, case) for name in ("dyadic", "optimized"))
    assert ours.fn is ladders.fn
    assert ours.padded_tokens == ladders.padded_tokens
    assert jax.tree.all(jax.tree.map(np.array_equal, ours.plan, ladders.plan))
    said = why_not(case.gate, case.heads, case.head_dim_k, case.head_dim_v)
    assert reason in said and "\n" not in said
    assert IMPLEMENTATIONS["dyadic"].instead(case) == said


def test_fp32_inputs_run_the_ladders_program():
    """Known only from the inputs: the same equations, on the plan that is kept for it."""
    case = KdaCase((70, 0, 20), dtype="float32", **DIMS)
    ours, ladders = (bind(name, case) for name in ("dyadic", "optimized"))
    plans = (ours.plan.ladder, ladders.plan)
    assert jax.tree.all(jax.tree.map(np.array_equal, *plans))
    shapes = input_shapes(case)

    def program(fn) -> str:
        text = str(jax.make_jaxpr(fn)(shapes, ladders.plan))
        return re.sub(r"0x[0-9a-f]+", "0x", text)

    text = program(lambda x, p: ours.fn(x, dataclasses.replace(ours.plan, ladder=p)))
    assert text == program(lambda x, p: ladders.fn(x, p))
    assert "kda_dyadic" not in text and "pallas_call" in text
    assert "float32 inputs" in IMPLEMENTATIONS["dyadic"].instead(case)


def test_auto_takes_it_on_a_tpu_for_k3_and_says_why():
    chosen = choose("tpu", K3)
    assert chosen.implementation.name == "dyadic"
    assert chosen.reason == "the fastest that can run this"
    assert IMPLEMENTATIONS["dyadic"].instead(K3) is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"gate": UNBOUNDED}, "dyadic: the unbounded gate has no lower bound"),
        ({"dtype": "float32"}, "dyadic: float32 inputs"),
    ],
    ids=["unbounded", "fp32"],
)
def test_auto_takes_the_ladders_end_on_a_tpu_where_it_does_not_apply(changes, reason):
    case = dataclasses.replace(K3, **changes)
    chosen = choose("tpu", case)
    assert chosen.implementation.name == "optimized"
    assert reason in chosen.reason
    by_name = choose("tpu", case, "dyadic")
    assert by_name.implementation.name == "dyadic"
    assert "falls back" in by_name.reason


def test_it_is_the_last_of_the_table_and_not_for_a_cpu():
    assert list(IMPLEMENTATIONS)[-2:] == ["optimized", "dyadic"]
    assert not IMPLEMENTATIONS["dyadic"].can_run("cpu", K3).ok
    assert choose("cpu", K3).implementation.name == "chunked_xla"


# The order in which heads' stages run.


def job(name: str, stages: int, log: list[str]):
    """Logs a letter and a number at each of its stages; yields between them."""
    for stage in range(stages):
        if stage:
            yield
        log.append(f"{name}{stage}")


def test_together_runs_a_stage_of_every_job_at_a_time():
    log: list[str] = []
    rounds = []
    for _ in together([job("a", 3, log), job("b", 1, log), job("c", 2, log)]):
        rounds.append(" ".join(log))
        log.clear()
    assert rounds[:3] == ["a0 b0 c0", "a1 c1", "a2"]
    assert not any(rounds[3:]) and not log


def test_jobs_start_in_their_round_and_keep_their_order_within_it():
    log: list[str] = []
    start_in_rounds(
        [(0, job("a", 3, log)), (1, job("b", 2, log)), (0, job("c", 1, log)), (3, job("d", 1, log))]
    )
    assert log == ["a0", "c0", "a1", "b0", "a2", "b1", "d0"]


def test_a_job_that_starts_after_all_others_ended_still_runs():
    log: list[str] = []
    start_in_rounds([(5, job("late", 1, log)), (0, job("a", 1, log))])
    assert log == ["a0", "late0"]


@pytest.mark.parametrize("known", [math.nan, -math.inf, -0.0, 3.4e38])
@pytest.mark.parametrize("width", [128, 256])
def test_what_has_to_wait_stays_bit_identical_whatever_it_waits_for(known, width):
    draw = np.random.default_rng(0)
    x = draw.standard_normal((1, width)).astype(np.float32)
    x[0, :3] = math.nan, -0.0, math.inf
    waited = jax.jit(after)(x, jnp.full((1, LANES), known, jnp.float32), jnp.int32(2**30 - 1))
    np.testing.assert_array_equal(np.asarray(waited).view(np.uint32), x.view(np.uint32))
    assert after(x, None, jnp.int32(0)) is x


# For a TPU, from this machine.


@pytest.mark.parametrize(
    ("lengths", "kernels"),
    [
        ((64, 128), ["kda_dyadic"]),
        ((70,), ["kda_dyadic"]),
        ((20, 0), ["kda_dyadic_short"]),
        ((70, 0, 64), ["kda_dyadic", "kda_dyadic_short"]),
    ],
    ids=["whole-tiles", "long", "short", "mixed"],
)
@pytest.mark.parametrize("gate", [BOUNDED, PROMISED], ids=["bounded", "promised"])
def test_it_lowers_for_a_tpu_with_a_kernel_for_each_kind_of_tile(lengths, kernels, gate):
    case = KdaCase(lengths, gate=gate, **DIMS)
    bound = bind("dyadic", case)
    # Pallas asks the mesh which TPU it lowers for.
    v6e = jax.sharding.AbstractDevice("TPU v6 lite", num_cores=1, platform="tpu")
    mesh = jax.sharding.AbstractMesh((1,), ("x",), abstract_device=v6e)
    with jax.sharding.use_abstract_mesh(mesh):
        exported = jax.export.export(jax.jit(bound.fn), platforms=["tpu"])(
            input_shapes(case), bound.plan
        )
    module = exported.mlir_module()
    assert module.count("stablehlo.custom_call @tpu_custom_call") == len(kernels)
    assert re.findall(r'kernel_name = "(\w+)"', module) == kernels
    # The second kernel writes into the memory of the first: no copy of o or of the states.
    assert [len(e.params["input_output_aliases"]) for e in kernels_of(case)] == [0, 2][
        : len(kernels)
    ]
