"""Forms that can be computed in several ways, with inputs: what the ``forms`` benchmark measures.

All ways of one form take the same inputs and give the same outputs; which is faster, on what, is
the question. Sizes are small: these are definitions, not kernels.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from k3bench.roofline.cost import Cost
from k3bench.roofline.dense import Dense
from k3bench.roofline.kda import Kda
from k3bench.roofline.linear import LinearState
from k3bench.roofline.mla import Mla
from k3bench.roofline.reference import kda, linear, masks, mla
from k3bench.roofline.reference.dense import grouped_attention
from k3bench.roofline.reference.softmax import split_kv
from k3bench.roofline.step import Step
from k3bench.roofline.windowed import Windowed

Inputs = dict[str, Any]
Way = Callable[[Inputs], tuple[Tensor, ...]]

CONTEXT = 1024
HEADS = 4
GROUPS = 2
DIM = 64
WINDOW, SINKS = 128, 4
SPLITS = 8
LATENT, ROPE = 128, 32
CHUNK = 64


@dataclass(frozen=True)
class FormProblem:
    """One form at one size.

    Attributes:
        step: new and cached tokens.
        make: (normal, dtype, device) to inputs; ``normal(*shape)`` draws.
        ways: by name; the first is the reference when it runs in float64.
        cost: of the form at this size, for the rates beside a time; fp32 throughout.
    """

    step: Step
    make: Callable[[Callable[..., Tensor], str], Inputs]
    ways: Mapping[str, Way]
    cost: Cost


def make_inputs(name: str, dtype: torch.dtype = torch.float32, device: str = "cpu") -> Inputs:
    """Seeded inputs of a problem; equal numbers (rounded) in every dtype and on every device."""
    generator = torch.Generator().manual_seed(20260101)

    def normal(*shape: int) -> Tensor:
        drawn = torch.randn(*shape, generator=generator, dtype=torch.float64)
        # Through float32, so that the float64 reference sees the same numbers.
        return drawn.float().to(dtype).to(device)

    return PROBLEMS[name].make(normal, device)


def form_content(name: str) -> dict[str, str | int]:
    """What the hash of a form's workload covers."""
    step = PROBLEMS[name].step
    return {"form": name, "new_tokens": step.new_tokens, "prefix_tokens": step.prefix_tokens}


@functools.cache
def expected_outputs(name: str) -> tuple[Tensor, ...]:
    """The first way in float64, on the CPU."""
    first = next(iter(PROBLEMS[name].ways.values()))
    return first(make_inputs(name, torch.float64))


def max_abs_error(found: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> float:
    """Over all outputs; NaN where one is NaN (Python's max would lose it, torch's does not)."""
    errors = [
        (one.cpu().double() - other).abs().max() for one, other in zip(found, expected, strict=True)
    ]
    return float(torch.stack(errors).max())


def _grouped(normal: Callable[..., Tensor], device: str) -> Inputs:
    return {
        "q": normal(HEADS, 1, DIM),
        "k": normal(GROUPS, CONTEXT, DIM),
        "v": normal(GROUPS, CONTEXT, DIM),
        "visible": masks.causal(1, CONTEXT - 1).to(device),
        "seen": masks.window(1, WINDOW, CONTEXT - 1, SINKS).to(device),
    }


def _whole(x: Inputs) -> tuple[Tensor, ...]:
    return (grouped_attention(x["q"], x["k"], x["v"], x["visible"]).o,)


def _split(x: Inputs) -> tuple[Tensor, ...]:
    repeats = HEADS // GROUPS
    k, v = (x[name].repeat_interleave(repeats, 0) for name in ("k", "v"))
    bounds = [CONTEXT * (number + 1) // SPLITS for number in range(SPLITS)]
    return (split_kv(x["q"], k, v, x["visible"], DIM**-0.5, bounds).o,)


def _masked(x: Inputs) -> tuple[Tensor, ...]:
    return (grouped_attention(x["q"], x["k"], x["v"], x["seen"]).o,)


def _dropped(x: Inputs) -> tuple[Tensor, ...]:
    """As a server does: rows between sinks and window are no longer there."""
    k, v = (torch.cat([x[name][:, :SINKS], x[name][:, -WINDOW:]], 1) for name in ("k", "v"))
    everything = x["seen"].new_ones(1, SINKS + WINDOW)
    return (grouped_attention(x["q"], k, v, everything).o,)


def _latents(new: int) -> Callable[[Callable[..., Tensor], str], Inputs]:
    def make(normal: Callable[..., Tensor], device: str) -> Inputs:
        return {
            "q_nope": normal(HEADS, new, DIM),
            "q_rope": normal(HEADS, new, ROPE),
            "cache": mla.Latents(
                normal(CONTEXT, LATENT),
                normal(CONTEXT, ROPE),
                normal(HEADS, LATENT, DIM) / LATENT**0.5,
                normal(HEADS, LATENT, DIM) / LATENT**0.5,
            ),
            "visible": masks.causal(new, CONTEXT - new).to(device),
            "prefix": CONTEXT - new,
        }

    return make


def _absorbed(x: Inputs) -> tuple[Tensor, ...]:
    return (mla.absorbed(x["q_nope"], x["q_rope"], x["cache"], x["visible"]).o,)


def _decompressed(x: Inputs) -> tuple[Tensor, ...]:
    return (mla.decompressed(x["q_nope"], x["q_rope"], x["cache"], x["visible"]).o,)


def _prefix_absorbed(x: Inputs) -> tuple[Tensor, ...]:
    q = (x["q_nope"], x["q_rope"])
    return (mla.prefix_absorbed(*q, x["cache"], x["visible"], x["prefix"]).o,)


def _states(decays: Callable[[int], Tensor]) -> Callable[[Callable[..., Tensor], str], Inputs]:
    def make(normal: Callable[..., Tensor], device: str) -> Inputs:
        q, k, v = (normal(HEADS, CONTEXT, DIM) for _ in range(3))
        return {
            "q": torch.nn.functional.normalize(q, dim=-1),
            "k": torch.nn.functional.normalize(k, dim=-1),
            "v": v,
            "decay": decays(HEADS).float().to(q.dtype).to(device),
            "state": torch.zeros(HEADS, DIM, DIM, dtype=q.dtype, device=device),
        }

    return make


def _linear(x: Inputs) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return x["q"], x["k"], x["v"], x["decay"]


_LINEAR_WAYS: Mapping[str, Way] = {
    "recurrent": lambda x: (linear.recurrent(*_linear(x), x["state"])[0],),
    "chunked": lambda x: (linear.chunked(*_linear(x), x["state"], CHUNK)[0],),
    "parallel": lambda x: (linear.parallel(*_linear(x)),),
}


def _kda(normal: Callable[..., Tensor], device: str) -> Inputs:
    made = _states(lambda heads: torch.ones(heads))(normal, device)
    return {
        **{name: made[name] for name in ("q", "k", "v")},
        "g": -5.0 * torch.sigmoid(normal(HEADS, CONTEXT, DIM)),
        "beta": torch.sigmoid(normal(HEADS, CONTEXT)),
        "state": normal(HEADS, DIM, DIM),
    }


def _delta(x: Inputs) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    return x["q"], x["k"], x["v"], x["g"], x["beta"], x["state"]


_DECODE = Step.decode(CONTEXT)
_CHUNK = Step.chunk(CONTEXT // 4, CONTEXT - CONTEXT // 4)
_PREFILL = Step.prefill(CONTEXT)
_GQA = Dense(HEADS, GROUPS, DIM, DIM, "fp32")
_WINDOW = Windowed(HEADS, GROUPS, DIM, DIM, "fp32", window=WINDOW, sinks=SINKS)
_MLA = Mla(HEADS, LATENT, ROPE, DIM, DIM, dtype="fp32")
_PLAIN = LinearState(HEADS, DIM, DIM, chunk=CHUNK, dtype="fp32")
_DECAYED = LinearState(HEADS, DIM, DIM, decayed=True, chunk=CHUNK, dtype="fp32")
_KDA = Kda(HEADS, DIM, DIM, chunk=CHUNK, dtype="fp32")
_MLA_WAYS: Mapping[str, Way] = {"decompressed": _decompressed, "absorbed": _absorbed}

PROBLEMS: Mapping[str, FormProblem] = MappingProxyType(
    {
        "gqa-decode": FormProblem(
            _DECODE, _grouped, {"whole": _whole, "split_kv": _split}, _GQA.attend(_DECODE)
        ),
        "streaming-decode": FormProblem(
            _DECODE, _grouped, {"masked": _masked, "dropped": _dropped}, _WINDOW.attend(_DECODE)
        ),
        "mla-decode": FormProblem(_DECODE, _latents(1), _MLA_WAYS, _MLA.attend(_DECODE)),
        "mla-chunk": FormProblem(
            _CHUNK,
            _latents(_CHUNK.new_tokens),
            {**_MLA_WAYS, "prefix_absorbed": _prefix_absorbed},
            _MLA.attend(_CHUNK),
        ),
        "linear-prefill": FormProblem(
            _PREFILL, _states(torch.ones), _LINEAR_WAYS, _PLAIN.attend(_PREFILL)
        ),
        "retnet-prefill": FormProblem(
            _PREFILL, _states(linear.retnet_decays), _LINEAR_WAYS, _DECAYED.attend(_PREFILL)
        ),
        "lightning-prefill": FormProblem(
            _PREFILL, _states(linear.lightning_decays), _LINEAR_WAYS, _DECAYED.attend(_PREFILL)
        ),
        "kda-prefill": FormProblem(
            _PREFILL,
            _kda,
            {
                "recurrent": lambda x: kda.recurrent(*_delta(x)),
                "chunked": lambda x: kda.chunked(*_delta(x), CHUNK),
            },
            _KDA.attend(_PREFILL),
        ),
    }
)
WAYS = tuple(dict.fromkeys(way for problem in PROBLEMS.values() for way in problem.ways))
