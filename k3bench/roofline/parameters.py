"""Weights that a model definition adds up to: its check against the sizes in the model's name."""

from dataclasses import dataclass

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
