"""One step of a whole model on one rank, block by block: FLOPs, bytes and time bounds.

A block's bytes are weights, caches and states, and the hidden vectors that enter and leave it: what
its kernels hand to each other stays on chip, so that no fusion beats the bound. Blocks follow one
another in every layer, so the step's bound is their sum; ``overlapped_bound_us`` says what even
reading the next block's weights ahead cannot beat.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from k3bench.roofline.cost import Bound, Cost, linear
from k3bench.roofline.errors import RooflineError
from k3bench.roofline.hardware import Hardware
from k3bench.roofline.hybrid import Attention
from k3bench.roofline.kda import Kda
from k3bench.roofline.mla import Form, Mla
from k3bench.roofline.model import Model
from k3bench.roofline.step import Step

_HIDDEN_BYTES = 2  # hidden vectors are bf16 throughout


@dataclass(frozen=True)
class Block:
    """Layers of one kind in one step on one rank.

    Attributes:
        name: of a form in the model's patterns (kda, full_attention, moe, ...), or
            attention_residual, other, collectives.
        layers: how many.
        parts: work of all of them by what it is for; ``cost`` is the sum.
        compute: dtype whose matrix peak holds.
    """

    name: str
    layers: int
    parts: Mapping[str, Cost]
    compute: str = "bf16"

    @property
    def cost(self) -> Cost:
        return sum(self.parts.values(), Cost())

    def dtype_on(self, hardware: Hardware) -> str:
        """``compute``, or bf16 where the device has no matrix peak for it (answers name it)."""
        return self.compute if self.compute in hardware.matrix else "bf16"

    def bound(self, hardware: Hardware) -> Bound:
        return self.cost.bound(hardware, self.dtype_on(hardware))


@dataclass(frozen=True)
class StepCost:
    """All blocks of one step (or of all chunks of one prefill) on one rank."""

    blocks: tuple[Block, ...]

    def total_bound_us(self, hardware: Hardware) -> float:
        """Blocks one after the other."""
        return sum(block.bound(hardware).seconds for block in self.blocks) * 1e6

    def overlapped_bound_us(self, hardware: Hardware) -> float:
        """Every resource busy from beginning to end."""
        bounds = [block.bound(hardware).by_resource for block in self.blocks]
        return 1e6 * max(sum(bound[name] for bound in bounds) for name in bounds[0])

    def to_json(self, hardware: Hardware) -> dict[str, object]:
        """``blocks`` and ``total_bound_us``: FLOPs, bytes and microseconds of one rank."""
        return {
            "blocks": {
                block.name: {
                    "flops": block.cost.flops,
                    "bytes": block.cost.hbm_bytes,
                    "bound_us": block.bound(hardware).seconds * 1e6,
                    "layers": block.layers,
                }
                for block in self.blocks
            },
            "total_bound_us": self.total_bound_us(hardware),
        }

    def named(self, name: str) -> Block:
        """The block of that name."""
        for block in self.blocks:
            if block.name == name:
                return block
        known = ", ".join(block.name for block in self.blocks)
        raise RooflineError(f"block {name!r}: use one of {known}")


def layer_parts(
    model: Model, form: Attention, step: Step, prefix_form: Form | None = None
) -> dict[str, Cost]:
    """One attention layer of one rank, by projections, attention, and what mixes around it.

    Args:
        model: for hidden width and the size of weights.
        form: the layer's form, split over the ranks already.
        step: the call.
        prefix_form: in which MLA attends cached tokens; the form of the new ones if not given.
    """
    attend = (
        form.attend(step, prefix_form=prefix_form) if isinstance(form, Mla) else form.attend(step)
    )
    parts = {
        "projections": _with_weights(form.project(step, model.hidden), model.weight_bytes)
        + _hidden(step, model.hidden),
        "attention": attend.resident(),
    }
    if isinstance(form, Kda):
        parts["convolution"] = form.mix(step).resident()
    return parts


def attention_layer(
    model: Model, name: str, step: Step, tp: int = 1, prefix_form: Form | None = None
) -> Cost:
    """One layer of the model's attention ``name`` on one of ``tp`` ranks."""
    form = model.form(name).shard(tp)
    return sum(layer_parts(model, form, step, prefix_form).values(), Cost())


def model_step(
    model: Model,
    step: Step,
    *,
    tp: int = 1,
    prefix_form: Form | None = None,
    collectives: bool = False,
) -> StepCost:
    """One step on one rank of ``tp``.

    Args:
        model: what runs.
        step: batch, new and cached tokens.
        tp: tensor-parallel ranks; batch and context are the same on all of them.
        prefix_form: in which MLA attends cached tokens.
        collectives: adds a block of two ring all-reduces of the hidden vectors a layer.
    """
    if tp < 1:
        raise RooflineError(f"tp is {tp}: give 1 or more")
    blocks = []
    for name in model.attention:
        layers = model.attention_pattern.count(name)
        parts = layer_parts(model, model.form(name).shard(tp), step, prefix_form)
        blocks.append(
            Block(name, layers, {part: cost.times(layers) for part, cost in parts.items()})
        )
    for name, mlp in model.mlps.items():
        layers = model.mlp_pattern.count(name)
        cost = mlp.shard(tp).cost(step.tokens, model.hidden) + _hidden(step, model.hidden)
        blocks.append(Block(name, layers, {"mlp": cost.times(layers)}, mlp.compute))
    if model.residual_layers is not None:
        blocks.append(Block("attention_residual", model.layers, {"mixes": _residual(model, step)}))
    blocks.append(Block("other", 1, _ends(model, step, tp)))
    if collectives and tp > 1:
        sent = 2 * (tp - 1) * step.tokens * model.hidden * _HIDDEN_BYTES // tp
        work = Cost(link_bytes=2 * model.layers * sent)
        blocks.append(Block("collectives", model.layers, {"all_reduce": work}))
    return StepCost(tuple(blocks))


def model_steps(model: Model, steps: Sequence[Step], **options: object) -> StepCost:
    """Several steps summed block by block: a prompt that is prefilled in chunks.

    Weights are read by every chunk; the head runs in every chunk, as servers do that sample there.
    """
    costs = [model_step(model, step, **options) for step in steps]  # type: ignore[arg-type]
    if not costs:
        raise RooflineError("no steps: give at least one")
    return StepCost(
        tuple(
            replace(
                blocks[0],
                parts={
                    part: sum((block.parts[part] for block in blocks), Cost())
                    for part in blocks[0].parts
                },
            )
            for blocks in zip(*(cost.blocks for cost in costs), strict=True)
        )
    )


def _hidden(step: Step, hidden: int) -> Cost:
    """A block's hidden vectors, in and out."""
    size = step.tokens * hidden * _HIDDEN_BYTES
    return Cost(read={"hidden": size}, written={"hidden": size})


def _with_weights(cost: Cost, weight_bytes: float) -> Cost:
    """Projections, stated for 2-byte weights, with those of the model."""
    return replace(
        cost, read={**cost.read, "weights": round(cost.read["weights"] * weight_bytes / 2)}
    )


def _residual(model: Model, step: Step) -> Cost:
    """K3's attention residuals: before each half of a layer, and once at the end, a weighted sum.

    Sources are the embedding, every finished block of layers and the one under way; a score is a
    normalised dot product with a learned vector (4 FLOPs an element), the sum takes 2. Those
    vectors do not depend on the input, so a block's mixes over finished sources can be made in one
    pass and kept: the cheaper of that and of reading all sources for every mix is counted.
    """
    assert model.residual_layers is not None
    sources = rows_read = rows_written = 0
    mixes_of_blocks = [
        2 * min(model.residual_layers, model.layers - first)
        for first in range(0, model.layers, model.residual_layers)
    ]
    mixes_of_blocks[-1] += 1  # the mix before the head
    for finished, mixes in enumerate(mixes_of_blocks, 1):
        sources += mixes * (finished + 1)
        at_once = finished + 2 * mixes < finished * mixes
        rows_read += mixes + (finished + mixes if at_once else finished * mixes)
        rows_written += mixes + (mixes if at_once else 0)
    row = model.hidden * _HIDDEN_BYTES
    return Cost(
        vector_flops=6 * step.tokens * sources * model.hidden,
        scores=step.tokens * sources,
        read={"hidden": step.tokens * rows_read * row, "weights": sum(mixes_of_blocks) * row},
        written={"hidden": step.tokens * rows_written * row},
    )


def _ends(model: Model, step: Step, tp: int) -> dict[str, Cost]:
    """Embedding rows, norms, and the head over each sequence's last token."""
    row = model.hidden * _HIDDEN_BYTES
    norms = 2 * model.layers + 1
    if model.vocab % tp:
        raise RooflineError(f"{model.vocab} words do not divide over {tp} devices: choose another")
    head = _with_weights(
        linear("head", step.batch, model.vocab // tp, model.hidden), model.weight_bytes
    )
    return {
        "embedding": Cost(
            read={"weights": step.tokens * row}, written={"hidden": step.tokens * row}
        ),
        "norms": Cost(
            vector_flops=4 * step.tokens * norms * model.hidden, read={"weights": norms * row}
        ),
        "head": head,
    }
