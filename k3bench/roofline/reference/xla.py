"""The ways of ways.py in jax, so that XLA can compile them for a TPU that is not here.

The same inputs under the same names give the same outputs. Loops are lax.scan, so that a program
does not grow with its context.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp

from k3bench.compiled.built import Built, UnsupportedError
from k3bench.roofline.reference.ways import CHUNK, CONTEXT, DIM, SINKS, SPLITS, WINDOW, make_inputs

Array = Any
Inputs = dict[str, Array]
Way = Callable[[Inputs], tuple[Array, ...]]

_NOTHING = -1e30  # below every score; a row here always sees itself


def _attend(q: Array, k: Array, v: Array, visible: Array, scale: float) -> tuple[Array, Array]:
    """o and log-sum-exp of rows that see at least one key."""
    scores = jnp.where(visible, scale * jnp.matmul(q, jnp.swapaxes(k, -1, -2)), _NOTHING)
    lse = jax.nn.logsumexp(scores, axis=-1)
    return jnp.matmul(jnp.exp(scores - lse[..., None]), v), lse


def _merge(o: Array, lse: Array) -> tuple[Array, Array]:
    """Parts along the first axis."""
    whole = jax.nn.logsumexp(lse, axis=0)
    return (jnp.exp(lse - whole)[..., None] * o).sum(0), whole


def _grouped(x: Inputs, k: Array, v: Array, visible: Array) -> tuple[Array, Array]:
    repeats = x["q"].shape[0] // k.shape[0]
    k, v = jnp.repeat(k, repeats, 0), jnp.repeat(v, repeats, 0)
    return _attend(x["q"], k, v, visible, DIM**-0.5)


def _whole(x: Inputs) -> tuple[Array, ...]:
    return (_grouped(x, x["k"], x["v"], x["visible"])[0],)


def _split(x: Inputs) -> tuple[Array, ...]:
    parts = [
        _grouped(x, x["k"][:, a:b], x["v"][:, a:b], x["visible"][:, a:b])
        for a, b in (
            (CONTEXT * number // SPLITS, CONTEXT * (number + 1) // SPLITS)
            for number in range(SPLITS)
        )
    ]
    o, lse = (jnp.stack(part) for part in zip(*parts, strict=True))
    return (_merge(o, lse)[0],)


def _masked(x: Inputs) -> tuple[Array, ...]:
    return (_grouped(x, x["k"], x["v"], x["seen"])[0],)


def _dropped(x: Inputs) -> tuple[Array, ...]:
    k, v = (
        jnp.concatenate([x[name][:, :SINKS], x[name][:, -WINDOW:]], axis=1) for name in ("k", "v")
    )
    return (_grouped(x, k, v, jnp.ones((1, SINKS + WINDOW), bool))[0],)


def _scale(x: Inputs) -> float:
    return float((x["q_nope"].shape[-1] + x["q_rope"].shape[-1]) ** -0.5)


def _absorbed_part(x: Inputs, c: Array, rope: Array, visible: Array) -> tuple[Array, Array]:
    moved = jnp.einsum("hmd,hld->hml", x["q_nope"], x["w_k"])
    q = jnp.concatenate([moved, x["q_rope"]], axis=-1)
    o, lse = _attend(q, jnp.concatenate([c, rope], axis=-1), c, visible, _scale(x))
    return jnp.einsum("hml,hlv->hmv", o, x["w_v"]), lse


def _decompressed_part(x: Inputs, c: Array, rope: Array, visible: Array) -> tuple[Array, Array]:
    k, v = (jnp.einsum("nl,hld->hnd", c, x[name]) for name in ("w_k", "w_v"))
    shared = jnp.broadcast_to(rope, (k.shape[0], *rope.shape))
    q = jnp.concatenate([x["q_nope"], x["q_rope"]], axis=-1)
    return _attend(q, jnp.concatenate([k, shared], axis=-1), v, visible, _scale(x))


def _absorbed(x: Inputs) -> tuple[Array, ...]:
    return (_absorbed_part(x, x["c"], x["k_rope"], x["visible"])[0],)


def _decompressed(x: Inputs) -> tuple[Array, ...]:
    return (_decompressed_part(x, x["c"], x["k_rope"], x["visible"])[0],)


def _prefix_absorbed(x: Inputs) -> tuple[Array, ...]:
    prefix = x["c"].shape[0] - x["q_nope"].shape[1]
    old = _absorbed_part(x, x["c"][:prefix], x["k_rope"][:prefix], x["visible"][:, :prefix])
    new = _decompressed_part(x, x["c"][prefix:], x["k_rope"][prefix:], x["visible"][:, prefix:])
    o, lse = (jnp.stack(part) for part in zip(old, new, strict=True))
    return (_merge(o, lse)[0],)


def _by_token(*arrays: Array) -> tuple[Array, ...]:
    return tuple(jnp.swapaxes(array, 0, 1) for array in arrays)


def _by_chunk(array: Array) -> Array:
    """[H, T, ...] to [T / CHUNK, H, CHUNK, ...]."""
    heads, tokens, *rest = array.shape
    return jnp.swapaxes(array.reshape(heads, tokens // CHUNK, CHUNK, *rest), 0, 1)


def _whole_again(chunks: Array) -> Array:
    """The inverse."""
    chunks = jnp.swapaxes(chunks, 0, 1)
    return chunks.reshape(chunks.shape[0], -1, *chunks.shape[3:])


def _linear_recurrent(x: Inputs) -> tuple[Array, ...]:
    def step(state: Array, token: tuple[Array, ...]) -> tuple[Array, Array]:
        q, k, v = token
        state = x["decay"][:, None, None] * state + k[..., :, None] * v[..., None, :]
        return state, jnp.einsum("hk,hkv->hv", q, state)

    _, o = jax.lax.scan(step, x["state"], _by_token(x["q"], x["k"], x["v"]))
    return (jnp.swapaxes(o, 0, 1),)


def _inside(q: Array, k: Array, v: Array, decay: Array) -> Array:
    step = jnp.arange(q.shape[1])
    distance = step[:, None] - step[None, :]
    weights = jnp.where(distance >= 0, decay[:, None, None] ** jnp.maximum(distance, 0), 0.0)
    return jnp.matmul(jnp.matmul(q, jnp.swapaxes(k, -1, -2)) * weights, v)


def _linear_parallel(x: Inputs) -> tuple[Array, ...]:
    return (_inside(x["q"], x["k"], x["v"], x["decay"]),)


def _linear_chunked(x: Inputs) -> tuple[Array, ...]:
    place = jnp.arange(CHUNK)
    reach = x["decay"][:, None] ** (place + 1)
    left = x["decay"][:, None] ** (CHUNK - 1 - place)

    def step(state: Array, chunk: tuple[Array, ...]) -> tuple[Array, Array]:
        q, k, v = chunk
        across = jnp.einsum("htk,hkv->htv", q * reach[..., None], state)
        o = _inside(q, k, v, x["decay"]) + across
        gained = jnp.einsum("htk,htv->hkv", k * left[..., None], v)
        return x["decay"][:, None, None] ** CHUNK * state + gained, o

    _, o = jax.lax.scan(step, x["state"], tuple(map(_by_chunk, (x["q"], x["k"], x["v"]))))
    return (_whole_again(o),)


def _kda_recurrent(x: Inputs) -> tuple[Array, ...]:
    scale = x["q"].shape[-1] ** -0.5

    def step(state: Array, token: tuple[Array, ...]) -> tuple[Array, Array]:
        q, k, v, g, beta = token
        state = jnp.exp(g)[..., None] * state
        wrong = beta[:, None] * (v - jnp.einsum("hk,hkv->hv", k, state))
        state = state + k[..., :, None] * wrong[:, None, :]
        return state, scale * jnp.einsum("hk,hkv->hv", q, state)

    tokens = _by_token(*(x[name] for name in ("q", "k", "v", "g", "beta")))
    state, o = jax.lax.scan(step, x["state"], tokens)
    return jnp.swapaxes(o, 0, 1), state


def _kda_chunked(x: Inputs) -> tuple[Array, ...]:
    scale = x["q"].shape[-1] ** -0.5
    lower = jnp.tril(jnp.ones((CHUNK, CHUNK), bool))
    strict = jnp.tril(jnp.ones((CHUNK, CHUNK), bool), -1)

    def step(state: Array, chunk: tuple[Array, ...]) -> tuple[Array, Array]:
        q, k, v, g, beta = chunk
        total = jnp.cumsum(g, axis=1)
        decay = jnp.exp(jnp.minimum(total[:, :, None] - total[:, None], 0.0))
        kk = jnp.einsum("hic,hjc,hijc->hij", k, k, decay)
        qk = jnp.where(lower, jnp.einsum("hic,hjc,hijc->hij", q, k, decay), 0.0)
        system = jnp.where(strict, beta[..., None] * kk, 0.0) + jnp.eye(CHUNK, dtype=q.dtype)
        reached = jnp.exp(total)
        seen = jnp.einsum("hik,hkv->hiv", k * reached, state)
        u = jax.lax.linalg.triangular_solve(
            system, beta[..., None] * (v - seen), left_side=True, lower=True, unit_diagonal=True
        )
        o = scale * (jnp.einsum("hik,hkv->hiv", q * reached, state) + jnp.matmul(qk, u))
        left = jnp.exp(total[:, -1:] - total)
        gained = jnp.einsum("hik,hiv->hkv", k * left, u)
        return jnp.exp(total[:, -1])[..., None] * state + gained, o

    chunks = tuple(_by_chunk(x[name]) for name in ("q", "k", "v", "g", "beta"))
    state, o = jax.lax.scan(step, x["state"], chunks)
    return _whole_again(o), state


_LINEAR: Mapping[str, Way] = {
    "recurrent": _linear_recurrent,
    "chunked": _linear_chunked,
    "parallel": _linear_parallel,
}
_MLA: Mapping[str, Way] = {"decompressed": _decompressed, "absorbed": _absorbed}

XLA_WAYS: Mapping[str, Mapping[str, Way]] = MappingProxyType(
    {
        "gqa-decode": {"whole": _whole, "split_kv": _split},
        "streaming-decode": {"masked": _masked, "dropped": _dropped},
        "mla-decode": _MLA,
        "mla-chunk": {**_MLA, "prefix_absorbed": _prefix_absorbed},
        "linear-prefill": _LINEAR,
        "retnet-prefill": _LINEAR,
        "lightning-prefill": _LINEAR,
        "kda-prefill": {"recurrent": _kda_recurrent, "chunked": _kda_chunked},
    }
)


def xla_inputs(name: str) -> Inputs:
    """The float32 inputs of ways.py as jax arrays, MLA's cache spread over its fields."""
    made = make_inputs(name)
    made.pop("prefix", None)
    cache = made.pop("cache", None)
    if cache is not None:
        made |= {field: getattr(cache, field) for field in ("c", "k_rope", "w_k", "w_v")}
    return {key: jnp.asarray(value.numpy()) for key, value in made.items()}


def build(form: str, way: str) -> Built:
    """The factory for k3bench.compiled.tpu.aot: one way of one form with abstract arguments.

    Raises UnsupportedError where the form has no such way. Products run at fp32's highest
    precision, as the definitions ask.
    """
    if way not in XLA_WAYS.get(form, {}):
        raise UnsupportedError(f"{form} has no way {way}")
    run = XLA_WAYS[form][way]

    def precise(inputs: Inputs) -> tuple[Array, ...]:
        with jax.default_matmul_precision("highest"):
            return run(inputs)

    abstract = {
        key: jax.ShapeDtypeStruct(value.shape, value.dtype)
        for key, value in xla_inputs(form).items()
    }
    return Built(precise, (abstract,))
