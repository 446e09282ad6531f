"""Weights that a definition adds up to: held against the model's name, and against memory."""

from dataclasses import dataclass

from k3bench.roofline.kda import Kda
from k3bench.roofline.mlp import Moe
from k3bench.roofline.model import Model
from k3bench.roofline.step import Step


@dataclass(frozen=True)
class Parameters:
    """Counts of weights, norms and biases left out.

    Attributes:
        total: that a checkpoint holds, embedding and head included.
        active: that one token meets: the head, and no more than a row of the embedding.
    """

    total: int
    active: int


def count_parameters(model: Model) -> Parameters:
    """From the products of one token through every layer."""
    step = Step.decode(1)
    total, active = 2 * model.vocab * model.hidden, model.vocab * model.hidden
    for name in model.attention_pattern.layers:
        form = model.attention[name]
        weights = form.project(step, model.hidden) + form.attend(step)
        count = weights.read["weights"] // 2  # stated for 2-byte weights
        total, active = total + count, active + count
    for name in model.mlp_pattern.layers:
        layer, met = model.mlps[name].parameters(model.hidden)
        total, active = total + layer, active + met
    return Parameters(total, active)


@dataclass(frozen=True)
class RankMemory:
    """What one rank keeps, in bytes: its weights, and caches and states of a batch.

    Activations, workspace and what a server keeps free are beside it.
    """

    weights: int
    states: int

    @property
    def total(self) -> int:
        return self.weights + self.states


def rank_memory(model: Model, tp: int, context: int, batch: int) -> RankMemory:
    """Of one of ``tp`` ranks that serves ``batch`` requests at ``context``, all experts kept."""
    one = Step.decode(1)
    weights = 2 * model.vocab * model.hidden * model.weight_bytes / tp
    states = 0
    for name in model.attention:
        form, layers = model.form(name).shard(tp), model.attention_pattern.count(name)
        read = (form.project(one, model.hidden) + form.attend(one)).read["weights"]
        weights += layers * read * model.weight_bytes / 2  # stated for 2-byte weights
        kept = form.state_bytes(context)
        if isinstance(form, Kda):
            kept += form.conv_state_bytes
        states += layers * batch * kept
    for name in model.mlps:
        mlp, layers = model.mlps[name].shard(tp), model.mlp_pattern.count(name)
        count, _ = mlp.parameters(model.hidden)
        if isinstance(mlp, Moe):
            experts = mlp.experts * 3 * mlp.intermediate * (mlp.latent or model.hidden)
            size = experts * mlp.expert_weight_bytes + (count - experts) * mlp.shared_weight_bytes
        else:
            size = count * mlp.weight_bytes
        weights += layers * size
    return RankMemory(round(weights), states)
