"""A small model with Kimi K3's layer pattern, to run the whole attribution path on a CPU.

Layers follow K3: every fourth is full attention (MLA), the last two both are, the rest are KDA; all
past the first carry MoE, the first a dense MLP. Widths are toy widths, weights are random, and the
model computes one token a step against caches of fixed size, as a decoder inside a graph does: the
shapes, and with them the names of the work, are the same in every step.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (torch's own name for it)

from k3bench.attribution.live.ranges import RangeRule

TOY_RULES: tuple[RangeRule, ...] = (
    RangeRule("ToyDeltaAttention", "K3/kda"),
    RangeRule("ToyLatentAttention", "K3/full_attn"),
    RangeRule("ToyMoE", "K3/moe"),
    RangeRule("ToyMlp", "K3/dense_mlp", outermost=True),
)


@dataclass(frozen=True)
class ToyConfig:
    """Widths of the toy; ``layers`` must leave 1 modulo 4, as K3's 93 does.

    The defaults keep one operation at tens of microseconds and more, well above what the profiler
    and the interpreter add to each.
    """

    layers: int = 9
    batch: int = 4
    hidden: int = 512
    heads: int = 4
    head_dim: int = 128
    conv_width: int = 4
    latent: int = 128
    rope: int = 32
    capacity: int = 512
    experts: int = 16
    experts_per_token: int = 2
    expert_hidden: int = 64
    vocabulary: int = 2048

    def __post_init__(self) -> None:
        if self.layers < 5 or self.layers % 4 != 1:
            raise ValueError(
                f"layers: {self.layers}: K3's pattern needs 4n + 1 layers, n >= 1 (e.g. 5, 9, 93)"
            )

    def is_full_attention(self, layer: int) -> bool:
        """``layer`` counts from 1: 4, 8, ... and the tail's second layer."""
        return layer % 4 == 0 or layer == self.layers

    @property
    def full_attention_layers(self) -> int:
        return sum(self.is_full_attention(layer) for layer in range(1, self.layers + 1))

    @property
    def kda_layers(self) -> int:
        return self.layers - self.full_attention_layers

    @property
    def moe_layers(self) -> int:
        return self.layers - 1


class RMSNorm(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """Root-mean-square norm over the last axis."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight)


class ToyDeltaAttention(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """One step of Kimi Delta Attention: short convolution, gated delta rule, gated norm.

    ``x`` [B, hidden] -> [B, hidden]. State: S [B, H, K, V] and the last ``conv_width`` - 1 inputs
    of the convolution, both updated in place. Per head, with decay a in (0, 1)^K:
    S <- diag(a) S + beta k (v - k^T diag(a) S)^T, and the output is q^T S.
    """

    def __init__(self, config: ToyConfig) -> None:
        super().__init__()
        width = config.heads * config.head_dim
        self.heads, self.head_dim = config.heads, config.head_dim
        self.qkv = nn.Linear(config.hidden, 3 * width, bias=False)
        self.decay = nn.Linear(config.hidden, width, bias=False)
        self.beta = nn.Linear(config.hidden, config.heads, bias=False)
        self.gate = nn.Linear(config.hidden, width, bias=False)
        self.out = nn.Linear(width, config.hidden, bias=False)
        self.norm = RMSNorm(config.head_dim)
        self.conv = nn.Parameter(torch.randn(3 * width, config.conv_width) / config.conv_width)
        shape = (config.batch, config.heads, config.head_dim, config.head_dim)
        self.register_buffer("state", torch.zeros(shape))
        self.register_buffer("window", torch.zeros(config.batch, 3 * width, config.conv_width))
        self.state: Tensor
        self.window: Tensor

    def forward(self, x: Tensor, position: int) -> Tensor:
        batch = x.shape[0]
        self.window.copy_(torch.cat((self.window[:, :, 1:], self.qkv(x).unsqueeze(-1)), dim=-1))
        mixed = F.silu((self.window * self.conv).sum(-1))
        q, k, v = mixed.view(batch, 3, self.heads, self.head_dim).unbind(1)
        q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        decay = torch.sigmoid(self.decay(x)).view(batch, self.heads, self.head_dim, 1)
        beta = torch.sigmoid(self.beta(x)).unsqueeze(-1)
        self.state.mul_(decay)
        correction = beta * (v - torch.einsum("bhk,bhkv->bhv", k, self.state))
        self.state.addcmul_(k.unsqueeze(-1), correction.unsqueeze(-2))
        read = torch.einsum("bhk,bhkv->bhv", q, self.state) / math.sqrt(self.head_dim)
        return self.out((self.norm(read).flatten(1)) * torch.sigmoid(self.gate(x)))


class ToyLatentAttention(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """One step of multi-head latent attention in its absorbed form, over a masked fixed cache.

    ``x`` [B, hidden] -> [B, hidden]; cache [B, capacity, latent + rope], one row written a step.
    """

    def __init__(self, config: ToyConfig) -> None:
        super().__init__()
        self.heads, self.head_dim, self.latent = config.heads, config.head_dim, config.latent
        stored = config.latent + config.rope
        self.q = nn.Linear(config.hidden, config.heads * stored, bias=False)
        self.kv = nn.Linear(config.hidden, stored, bias=False)
        self.value = nn.Parameter(
            torch.randn(config.heads, config.latent, config.head_dim) / math.sqrt(config.latent)
        )
        self.out = nn.Linear(config.heads * config.head_dim, config.hidden, bias=False)
        self.register_buffer("cache", torch.zeros(config.batch, config.capacity, stored))
        self.register_buffer("mask", torch.full((config.capacity,), -math.inf))
        self.cache: Tensor
        self.mask: Tensor

    def forward(self, x: Tensor, position: int) -> Tensor:
        batch = x.shape[0]
        self.cache[:, position].copy_(self.kv(x))
        self.mask[position] = 0.0
        q = self.q(x).view(batch, self.heads, -1)
        scores = q @ self.cache.transpose(1, 2) / math.sqrt(q.shape[-1]) + self.mask
        read = torch.softmax(scores, dim=-1) @ self.cache[:, :, : self.latent]
        return self.out(torch.einsum("bhl,hld->bhd", read, self.value).flatten(1))


class ToyMlp(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """A gated MLP: the dense one of the first layer, and the shared expert inside the MoE."""

    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.up = nn.Linear(hidden, 2 * inner, bias=False)
        self.down = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class ToyMoE(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """Sigmoid routing to the top k experts plus a shared one.

    The chosen experts' weights are gathered and applied in batched products, so that every step
    issues the same operations whatever the routing.
    """

    def __init__(self, config: ToyConfig) -> None:
        super().__init__()
        hidden, inner = config.hidden, config.expert_hidden
        self.top_k = config.experts_per_token
        self.router = nn.Linear(hidden, config.experts, bias=False)
        self.up = nn.Parameter(torch.randn(config.experts, inner, hidden) / math.sqrt(hidden))
        self.down = nn.Parameter(torch.randn(config.experts, hidden, inner) / math.sqrt(inner))
        self.shared = ToyMlp(hidden, inner)

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = torch.sigmoid(self.router(x)).topk(self.top_k, dim=-1)
        inner = F.silu(torch.einsum("bkih,bh->bki", self.up[chosen], x))
        routed = torch.einsum("bkhi,bki->bkh", self.down[chosen], inner)
        return (routed * weights.unsqueeze(-1)).sum(1) + self.shared(x)


class ToyLayer(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """Norm, attention, norm, MoE or dense MLP, each with its residual."""

    def __init__(self, config: ToyConfig, layer: int) -> None:
        super().__init__()
        full = config.is_full_attention(layer)
        self.attention_norm, self.mlp_norm = RMSNorm(config.hidden), RMSNorm(config.hidden)
        self.attention: nn.Module = (ToyLatentAttention if full else ToyDeltaAttention)(config)
        self.mlp: nn.Module = (
            ToyMlp(config.hidden, 2 * config.expert_hidden) if layer == 1 else ToyMoE(config)
        )

    def forward(self, x: Tensor, position: int) -> Tensor:
        x = x + self.attention(self.attention_norm(x), position)
        return x + self.mlp(self.mlp_norm(x))


class ToyK3(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """The toy decoder. ``step(tokens [B])`` -> logits [B, vocabulary], greedy use; CPU, float32."""

    def __init__(self, config: ToyConfig | None = None, seed: int = 0) -> None:
        super().__init__()
        self.config = config or ToyConfig()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.embedding = nn.Embedding(self.config.vocabulary, self.config.hidden)
            self.layers = nn.ModuleList(
                ToyLayer(self.config, layer) for layer in range(1, self.config.layers + 1)
            )
            self.norm = RMSNorm(self.config.hidden)
            self.head = nn.Linear(self.config.hidden, self.config.vocabulary, bias=False)
        self.position = 0
        self.requires_grad_(False)

    def forward(self, tokens: Tensor, position: int) -> Tensor:
        x: Tensor = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, position)
        logits: Tensor = self.head(self.norm(x))
        return logits

    def step(self, tokens: Tensor) -> Tensor:
        """One decode step for the whole batch; raises ValueError when the caches are full."""
        if self.position >= self.config.capacity:
            raise ValueError(f"the toy's cache of {self.config.capacity} tokens is full: reset it")
        logits: Tensor = self(tokens, self.position)
        self.position += 1
        return logits

    def reset(self) -> None:
        """Empty every cache and state."""
        self.position = 0
        for module in self.modules():
            if isinstance(module, ToyDeltaAttention):
                module.state.zero_()
                module.window.zero_()
            elif isinstance(module, ToyLatentAttention):
                module.cache.zero_()
                module.mask.fill_(-math.inf)

    def describe(self) -> dict[str, Any]:
        """How many layers carry each block."""
        config = self.config
        return {
            "layers": config.layers,
            "kda": config.kda_layers,
            "full_attn": config.full_attention_layers,
            "moe": config.moe_layers,
        }
