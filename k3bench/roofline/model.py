"""Models as models/*.toml state them: sizes, the order of their layers, and what was assumed."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from k3bench.roofline.definitions import Table, read_definition, shipped_names
from k3bench.roofline.dense import Dense
from k3bench.roofline.errors import RooflineError
from k3bench.roofline.hybrid import Attention, Pattern
from k3bench.roofline.kda import Kda
from k3bench.roofline.linear import lightning
from k3bench.roofline.mla import Mla
from k3bench.roofline.mlp import Mlp, Moe
from k3bench.roofline.sparse import Dsa
from k3bench.roofline.windowed import Windowed

T = TypeVar("T")


@dataclass(frozen=True)
class Model:
    """A decoder, whole (before it is split over devices).

    Attributes:
        name, title, source: as shown; where the sizes stand.
        hidden, vocab: widths.
        attention, mlps: forms by their names in the patterns.
        attention_pattern, mlp_pattern: the order of the layers.
        weight_bytes: of a weight outside of routed experts.
        residual_layers: layers of one block of K3's attention residuals, None without.
        assumed: what the source does not state, with the reason.
    """

    name: str
    title: str
    source: str
    hidden: int
    vocab: int
    attention: Mapping[str, Attention] = field(repr=False)
    mlps: Mapping[str, Mlp | Moe] = field(repr=False)
    attention_pattern: Pattern = field(repr=False)
    mlp_pattern: Pattern = field(repr=False)
    weight_bytes: float = 2.0
    residual_layers: int | None = None
    assumed: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def layers(self) -> int:
        return len(self.attention_pattern.layers)

    def form(self, name: str) -> Attention:
        """A form of attention by its name in the pattern."""
        if name not in self.attention:
            raise RooflineError(
                f"{self.name} has no attention {name!r}: use {', '.join(self.attention)}"
            )
        return self.attention[name]


def model_names() -> tuple[str, ...]:
    """Names of the shipped models."""
    return shipped_names("models")


@functools.cache
def get_model(name: str) -> Model:
    """A shipped model, or one that a path to a TOML file describes.

    Raises RooflineError naming the shipped ones, or the file and the key that is wrong.
    """
    label, values = read_definition("models", name)
    table = Table(label, values)
    weight_bytes = _weight_bytes(table)
    made = Model(
        name=table.text("name"),
        title=table.text("title"),
        source=table.text("source"),
        hidden=table.count("hidden"),
        vocab=table.count("vocab"),
        weight_bytes=weight_bytes,
        attention=_forms(table.table("attention"), _attention),
        attention_pattern=_pattern(table, "attention_pattern"),
        mlps=_forms(table.table("mlp"), functools.partial(_mlp, weight_bytes=weight_bytes)),
        mlp_pattern=_pattern(table, "mlp_pattern"),
        residual_layers=table.count("residual_layers") if "residual_layers" in values else None,
        assumed=_texts(table.table("assumed")) if "assumed" in values else {},
    )
    table.done()
    for what, pattern, forms in (
        ("attention_pattern", made.attention_pattern, made.attention),
        ("mlp_pattern", made.mlp_pattern, made.mlps),
    ):
        if set(pattern.layers) != set(forms):
            raise RooflineError(
                f"{label}: {what} names {', '.join(sorted(set(pattern.layers)))}, the forms are "
                f"{', '.join(sorted(forms))}: name each in both"
            )
    if len(made.mlp_pattern.layers) != made.layers:
        raise RooflineError(
            f"{label}: {made.layers} layers of attention and {len(made.mlp_pattern.layers)} of mlp"
        )
    return made


def _weight_bytes(table: Table, key: str = "weight_bits", default: float = 16.0) -> float:
    bits = table.values.pop(key, default)
    if isinstance(bits, bool) or not isinstance(bits, int | float) or bits <= 0:
        raise RooflineError(f"{table.where}: {key} is {bits!r}: give a positive number")
    return bits / 8


def _texts(table: Table) -> dict[str, str]:
    return {key: table.text(key) for key in list(table.values)}


def _forms(table: Table, build: Callable[[Table], T]) -> dict[str, T]:
    made = {}
    for name in list(table.values):
        inner = table.table(name)
        made[name] = build(inner)
        inner.done()
    return made


def _pattern(table: Table, key: str) -> Pattern:
    repeats = []
    for entry in table.tables(key):
        repeats.append((entry.count("repeat", default=1), entry.texts("layers")))
        entry.done()
    return Pattern.of(*repeats)


def _attention(table: Table) -> Attention:
    """One form by its ``form``: gqa, window, mla, dsa, kda or lightning."""
    form = table.text("form")
    heads = table.count("heads")
    if form in ("gqa", "window"):
        dense = Dense(heads, table.count("kv_heads"), table.count("head_dim"), table.count("v_dim"))
        if form == "gqa":
            return dense
        sizes = (dense.heads, dense.kv_heads, dense.qk_dim, dense.v_dim, dense.dtype)
        return Windowed(*sizes, window=table.count("window"))
    if form in ("mla", "dsa"):
        mla = Mla(
            heads=heads,
            latent=table.count("latent"),
            rope=table.count("rope"),
            nope=table.count("nope"),
            v_dim=table.count("v_dim"),
            q_latent=table.count("q_latent") if "q_latent" in table.values else None,
            gated=table.flag("gated"),
        )
        if form == "mla":
            return mla
        return Dsa(
            mla,
            top_k=table.count("top_k"),
            index_heads=table.count("index_heads"),
            index_dim=table.count("index_dim"),
            index_bytes_per_token=table.count("index_bytes_per_token"),
        )
    if form == "kda":
        rank = "output_gate_rank"
        return Kda(
            heads=heads,
            k_dim=table.count("head_dim"),
            v_dim=table.count("v_dim"),
            gate_rank=table.count("gate_rank"),
            output_gate_rank=table.count(rank) if rank in table.values else None,
            conv_taps=table.count("conv_taps"),
        )
    if form == "lightning":
        return lightning(heads, table.count("head_dim"), table.count("block"))
    raise RooflineError(
        f"{table.where}: form {form!r}: use gqa, window, mla, dsa, kda or lightning"
    )


def _mlp(table: Table, weight_bytes: float) -> Mlp | Moe:
    """A gated MLP, or experts where the table counts some."""
    intermediate = table.count("intermediate")
    if "experts" not in table.values:
        return Mlp(intermediate, weight_bytes)
    shared = table.count("shared_experts") if "shared_experts" in table.values else 0
    return Moe(
        experts=table.count("experts"),
        top_k=table.count("top_k"),
        intermediate=intermediate,
        shared=shared * intermediate,
        latent=table.count("latent") if "latent" in table.values else None,
        expert_weight_bytes=_weight_bytes(table, "expert_weight_bits", 8 * weight_bytes),
        shared_weight_bytes=weight_bytes,
        compute=table.text("compute") if "compute" in table.values else "bf16",
    )
