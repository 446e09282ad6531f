"""What a KDA prefill call is given: the case that describes it, and seeded inputs made from it."""

import functools
import math
import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from kda_tpu.errors import KdaArgumentError
from kda_tpu.gate import Gate
from kda_tpu.layout import check_lengths

DTYPES = ("bfloat16", "float32")
INITIAL_STATES = ("random", "zero")

# The mean of the raw gate. With A_log and dt_bias as drawn below, the median log decay of a step
# is about, bounded | unbounded: weak -0.06 | -0.006, typical -0.7 | -0.11, strong -4.9 | -3.5.
_GATE_MEAN = {"weak": -5.0, "typical": -2.0, "strong": 4.0}
# A state that a typical prefill leaves behind has entries of about this standard deviation.
_STATE_STD = 0.1
_BLOCK_ELEMENTS = 1 << 16

FloatRows = NDArray[np.float32]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class KdaInputs:
    """The tensors of one call, N sequences packed on one token axis, no batch dimension.

    q, k, g: [1, T, H, K]; v: [1, T, H, V]; beta: [1, T, H], already after the sigmoid;
    A_log: [H] fp32; dt_bias: [H, K] fp32; initial_state: [N, H, K, V] fp32.
    T may exceed the sum of the lengths: what lies past them is read by nobody.
    """

    q: jax.Array
    k: jax.Array
    v: jax.Array
    g: jax.Array
    beta: jax.Array
    A_log: jax.Array
    dt_bias: jax.Array
    initial_state: jax.Array


@dataclass(frozen=True)
class KdaCase:
    """One shape of KDA prefill and how its inputs are drawn; K3's per-chip geometry by default.

    lengths: tokens of each sequence, zeros allowed; dtype: of q, k, v and raw g;
    initial_state: ``random`` (normal, standard deviation 0.1) or ``zero``; gate_strength:
    ``weak``, ``typical`` or ``strong``; seed: of everything drawn.
    Raises KdaArgumentError naming the field that is wrong.
    """

    lengths: tuple[int, ...]
    heads: int = 24
    head_dim_k: int = 128
    head_dim_v: int = 128
    dtype: str = "bfloat16"
    gate: Gate = field(default_factory=Gate)
    seed: int = 0
    initial_state: str = "random"
    gate_strength: str = "typical"

    def __post_init__(self) -> None:
        object.__setattr__(self, "lengths", tuple(int(n) for n in check_lengths(self.lengths)))
        for name in ("heads", "head_dim_k", "head_dim_v"):
            if getattr(self, name) < 1:
                raise KdaArgumentError(f"{name} is {getattr(self, name)}: must be at least 1")
        choices = {
            "dtype": DTYPES,
            "initial_state": INITIAL_STATES,
            "gate_strength": tuple(_GATE_MEAN),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise KdaArgumentError(
                    f"{name} is {getattr(self, name)!r}: use one of {', '.join(allowed)}"
                )
        if self.seed < 0:
            raise KdaArgumentError(f"seed is {self.seed}: must be zero or more")

    @property
    def tokens(self) -> int:
        """Tokens over all sequences."""
        return sum(self.lengths)


class _Stream:
    """Normal draws from raw Philox words, which numpy promises never to change.

    numpy's own distributions may change between versions (NEP 19), and drawing 0.8 G normals
    through them takes several times as long as looking up 16-bit words in a table of the 65,536
    equiprobable quantiles of the normal. The table ends at 4.3 standard deviations.
    """

    def __init__(self, seed: int, name: str) -> None:
        self._bits = np.random.Philox(np.random.SeedSequence([seed, *name.encode()]))

    def normal(self, *shape: int) -> NDArray[np.float32]:
        """Standard normal float32, in one of 65,536 values."""
        count = math.prod(shape)
        words = self._bits.random_raw(-(-count // 4)).view(np.uint16)[:count]
        return _quantiles()[words].reshape(shape)

    def fill(
        self, shape: tuple[int, ...], dtype: np.dtype, finish: Callable[[FloatRows], FloatRows]
    ) -> NDArray:
        """finish(standard normal rows) rounded to dtype, a cache-sized block of rows at a time.

        At 65,536 tokens of 24 heads this makes 1.6 GB of tensors at a peak of 3.1 GB (whole-array
        fp32 passes: 4.3 GB), in 5 s on two cores.
        """
        out = np.empty(shape, dtype)
        rows = out.reshape(-1, shape[-1])
        block = 4 * max(1, _BLOCK_ELEMENTS // (4 * shape[-1]))  # whole 64-bit words a block
        for start in range(0, len(rows), block):
            piece = rows[start : start + block]
            piece[...] = finish(self.normal(*piece.shape))
        return out


@functools.cache
def _quantiles() -> NDArray[np.float32]:
    # The standard library's AS241 rather than scipy: 0.2 s less to import, and it stays the same.
    inverse = statistics.NormalDist().inv_cdf
    upper = [inverse((i + 0.5) / (1 << 16)) for i in range(1 << 15, 1 << 16)]
    return np.array([-x for x in reversed(upper)] + upper, np.float32)


def _unit(x: FloatRows) -> FloatRows:
    """Rows L2-normalised."""
    return x / np.sqrt(np.einsum("rk,rk->r", x, x))[:, None]


def _log_decay_on_host(
    gate: Gate, raw: NDArray[np.float32], A_log: NDArray[np.float32], dt_bias: NDArray[np.float32]
) -> NDArray[np.float32]:
    """What a caller with an activated gate would hand over: bounded if it promised a bound."""
    rate = np.exp(A_log)[:, None]
    x = raw + dt_bias
    if gate.lower_bound is None:
        return -rate * np.logaddexp(x, np.float32(0.0))
    return np.float32(gate.lower_bound) / (1.0 + np.exp(-rate * x))


def input_shapes(case: KdaCase) -> KdaInputs:
    """KdaInputs of jax.ShapeDtypeStruct: what lowering needs of a case, without its data."""
    T, H, K, V = case.tokens, case.heads, case.head_dim_k, case.head_dim_v
    gate_dtype = case.dtype if case.gate.is_raw else "float32"

    def shape(dtype: str, *dims: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(dims, jnp.dtype(dtype))

    return KdaInputs(
        q=shape(case.dtype, 1, T, H, K),
        k=shape(case.dtype, 1, T, H, K),
        v=shape(case.dtype, 1, T, H, V),
        g=shape(gate_dtype, 1, T, H, K),
        beta=shape("float32", 1, T, H),
        A_log=shape("float32", H),
        dt_bias=shape("float32", H, K),
        initial_state=shape("float32", len(case.lengths), H, K, V),
    )


def make_inputs(case: KdaCase) -> KdaInputs:
    """The inputs of a case, on jax's default device: the same bits for the same case.

    Every tensor has its own Philox stream, keyed by the seed and the tensor's name, so changing
    the dtype or one dimension does not reshuffle the other tensors. q and k are L2-normalised
    over K before rounding to the case's dtype; v is standard normal; beta is sigmoid(normal) in
    fp32 (models compute it in fp32); g is normal about the mean that gate_strength names, raw and
    in the case's dtype, or fp32 log decays where the gate is activated.
    """
    T, H, K, V = case.tokens, case.heads, case.head_dim_k, case.head_dim_v
    dtype = np.dtype(case.dtype)
    mean = np.float32(_GATE_MEAN[case.gate_strength])

    def draw(name: str, *shape: int) -> NDArray[np.float32]:
        return _Stream(case.seed, name).normal(*shape)

    # exp(A_log) about 0.6 to 1.6 and small biases: the mean of g stays what sets the strength.
    A_log = 0.3 * draw("A_log", H).clip(-1.5, 1.5)
    dt_bias = 0.3 * draw("dt_bias", H, K)

    def make_g() -> NDArray:
        if case.gate.is_raw:
            return _Stream(case.seed, "g").fill((1, T, H, K), dtype, lambda x: mean + x)
        return _log_decay_on_host(case.gate, mean + draw("g", 1, T, H, K), A_log, dt_bias)

    def make_state() -> NDArray:
        shape = (len(case.lengths), H, K, V)
        if case.initial_state == "zero":
            return np.zeros(shape, np.float32)
        return _STATE_STD * draw("initial_state", *shape)

    makers: tuple[Callable[[], NDArray], ...] = (
        lambda: _Stream(case.seed, "q").fill((1, T, H, K), dtype, _unit),
        lambda: _Stream(case.seed, "k").fill((1, T, H, K), dtype, _unit),
        lambda: _Stream(case.seed, "v").fill((1, T, H, V), dtype, lambda x: x),
        make_g,
        lambda: 1.0 / (1.0 + np.exp(-draw("beta", 1, T, H))),
        make_state,
    )
    with ThreadPoolExecutor(3) as pool:  # numpy releases the interpreter lock; six contend
        q, k, v, g, beta, state = pool.map(lambda make: jnp.asarray(make()), makers)
    return KdaInputs(q, k, v, g, beta, jnp.asarray(A_log), jnp.asarray(dt_bias), state)
