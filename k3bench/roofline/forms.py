"""Every form by name at one common size, so that they can stand on one scale.

The common size is one layer of Kimi K3's attention before it is split: 96 query heads of 128.
``form_layer(name, tp)`` splits it. Attention alone is compared: projections differ by model, and
MLA's up-projections are to it what a key/value projection is to GQA, so ``attention_alone`` leaves
both out.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Protocol

from k3bench.roofline.cost import Cost
from k3bench.roofline.dense import Dense
from k3bench.roofline.errors import RooflineError
from k3bench.roofline.kda import Kda
from k3bench.roofline.linear import LinearState, lightning, retnet
from k3bench.roofline.mla import Mla
from k3bench.roofline.shared_cache import SharedCache
from k3bench.roofline.sparse import BlockSparse, Dsa, Nsa
from k3bench.roofline.step import Step
from k3bench.roofline.windowed import Windowed

HEADS = 96
GROUPS = 8
_LONGEST = 1 << 20
_STRIDED_BLOCK = 1024
YOCO_LAYERS = 24


class Costed(Protocol):
    """What the table asks of a form; every form of this room answers it."""

    @property
    def cache_bytes_per_token(self) -> int: ...

    def state_bytes(self, context: int) -> int: ...

    def attend(self, step: Step) -> Cost: ...


@dataclass(frozen=True)
class NamedForm:
    """One form as ``forms list`` shows it.

    Attributes:
        name, title: as shown.
        state: what a request keeps, as a formula of T, the context.
        decode: FLOPs of a decode step, as a formula.
        assumption: what the cost takes for granted.
        build: the form over a number of local query heads.
        layers: that one cost covers (YOCO's shared cache has no cost of one layer).
    """

    name: str
    title: str
    state: str
    decode: str
    assumption: str
    build: Callable[[int], Costed]
    layers: int = 1


def _groups(heads: int) -> int:
    """Key/value heads of a GQA layer that is split: the same group size as a whole one."""
    return max(1, heads * GROUPS // HEADS)


def _strided(heads: int) -> BlockSparse:
    """Blocks on the diagonal, the one before, the first, and every eighth (a strided mask)."""
    blocks = _LONGEST // _STRIDED_BLOCK
    visible = tuple(
        tuple(
            key in (0, query, query - 1) or (key <= query and key % 8 == 0) for key in range(blocks)
        )
        for query in range(blocks)
    )
    return BlockSparse(heads, _groups(heads), block=_STRIDED_BLOCK, visible=visible)


_ONCE = "keys and values are read once a group of query heads; scores never leave the chip"

FORMS: Mapping[str, NamedForm] = MappingProxyType(
    {
        form.name: form
        for form in (
            NamedForm(
                "mha", "multi-head attention", "2 H d b T", "4 H d T", _ONCE,
                lambda heads: Dense(heads, heads),
            ),
            NamedForm(
                "mqa", "multi-query attention", "2 d b T", "4 H d T", _ONCE,
                lambda heads: Dense(heads, 1),
            ),
            NamedForm(
                "gqa", "grouped-query attention, 12 query heads a group", "2 G d b T", "4 H d T",
                _ONCE, lambda heads: Dense(heads, _groups(heads)),
            ),
            NamedForm(
                "mla", "multi-head latent attention", "(512 + 64) b T", "2 H (576 + 512) T",
                "absorbed for one token, decompressed where that takes fewer FLOPs",
                lambda heads: Mla(heads),
            ),
            NamedForm(
                "yoco", f"one cache for {YOCO_LAYERS} GQA layers", "T b_row, once for all layers",
                f"{YOCO_LAYERS} x 4 H d T", "a prefill runs these layers for its last token alone",
                lambda heads: SharedCache(Dense(heads, _groups(heads)), YOCO_LAYERS), YOCO_LAYERS,
            ),
            NamedForm(
                "window", "sliding window of 1024, GQA", "2 G d b min(T, W)", "4 H d min(T, W)",
                "rows past the window are dropped",
                lambda heads: Windowed(heads, _groups(heads), window=1024),
            ),
            NamedForm(
                "streaming", "StreamingLLM: 4 sinks and a window of 1024, GQA",
                "2 G d b min(T, S + W)", "4 H d min(T, S + W)",
                "rows between sinks and window are dropped",
                lambda heads: Windowed(heads, _groups(heads), window=1024, sinks=4),
            ),
            NamedForm(
                "block-sparse", "blocks of 1024: first, diagonal, previous, every eighth; GQA",
                "2 G d b T", "4 H d x visible keys", "the mask is known and costs nothing",
                _strided,
            ),
            NamedForm(
                "nsa", "native sparse attention: compressed, 16 of 64 selected, window 512; GQA",
                "2 G d b (T + T / 16)", "4 H d (T / 16 + 1024 + 512)",
                "the compressed branch's scores choose the blocks; the choice itself is free",
                lambda heads: Nsa(heads, _groups(heads)),
            ),
            NamedForm(
                "dsa", "DeepSeek sparse attention: indexer of 64 heads, best 2048, MLA",
                "(1152 + 132) T", "2 H_i d_i T + 2 H (576 + 512) min(T, 2048)",
                "top-k compares every score once",
                lambda heads: Dsa(Mla(heads)),
            ),
            NamedForm(
                "linear", "linear attention", "H K V 4", "4 H K V",
                "the state crosses memory once a call, in and out",
                lambda heads: LinearState(heads),
            ),
            NamedForm(
                "retnet", "RetNet: keys 256, values 512, half as many heads", "H K V 4", "5 H K V",
                "the state crosses memory once a call, in and out",
                lambda heads: retnet(max(1, heads // 2)),
            ),
            NamedForm(
                "lightning", "Lightning Attention-2, blocks of 256", "H K V 4", "5 H K V",
                "the state crosses memory once a call, in and out", lightning,
            ),
            NamedForm(
                "gated-delta", "gated delta rule: one decay a head", "H K V 4", "7 H K V",
                "the state crosses memory once a call, in and out",
                lambda heads: Kda(heads, channel_decay=False),
            ),
            NamedForm(
                "kda", "Kimi Delta Attention, chunks of 64", "H K V 4", "7 H K V",
                "the state crosses memory once a call, in and out", Kda,
            ),
        )
    }
)  # fmt: skip


_PROJECTIONS = frozenset({"absorb_q", "expand_o", "decompress"})


def attention_alone(cost: Cost) -> Cost:
    """The work without products with weights, which some forms carry inside."""
    return replace(
        cost,
        gemms=tuple(gemm for gemm in cost.gemms if gemm.name not in _PROJECTIONS),
        read={label: size for label, size in cost.read.items() if label != "weights"},
    )


def get_form(name: str) -> NamedForm:
    """The form of that name; RooflineError naming the known ones."""
    if name not in FORMS:
        raise RooflineError(f"form {name!r}: use one of {', '.join(FORMS)}")
    return FORMS[name]


def form_layer(name: str, tp: int = 1) -> Costed:
    """One layer of the common size on one of ``tp`` ranks."""
    if tp < 1 or HEADS % tp:
        raise RooflineError(f"{HEADS} heads do not divide over {tp} devices: choose another")
    return get_form(name).build(HEADS // tp)
