"""The toy of K3 under the real profiler: ranges, trace, map, counts, composition, direct timing."""

import statistics
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from k3bench.attribution.live.ranges import RangeRule, attach
from k3bench.attribution.live.toy import TOY_RULES, ToyConfig, ToyK3
from k3bench.attribution.live.toy_profile import profile_toy, toy_definition
from k3bench.attribution.pipeline import compose_trace, learn_map

SMALL = ToyConfig(
    layers=5, batch=2, hidden=64, heads=2, head_dim=32, latent=32, rope=8, capacity=64
)
STEPS = 11
# In every step a block's operators take less than the block timed around them, by what the
# interpreter does between operators, and by any time another process had the core there. In the
# least disturbed of 11 steps they came to 0.92 to 0.99 of it for each of the four blocks, at loads
# from 8 to 16 on two cores, and once to 0.81 (measured on a CPU). What is demanded is far below
# that, and far above the 0 of a block whose operators went elsewhere. The dense MLP, 40 us, is left
# out of that: one interruption is many times its length.
LEAST_COVERED = 0.6
LARGE_BLOCKS = ("kda", "full_attn", "moe", "other")
# Median over the steps of a share from the trace less the share timed: within 0.025 at a load of 8,
# within 0.040 at 16. Without one block's range it is beyond 0.15.
SHARE_TOLERANCE = 0.08


@pytest.mark.parametrize(
    ("layers", "kda", "full", "moe"), [(5, 3, 2, 4), (9, 6, 3, 8), (93, 69, 24, 92)]
)
def test_the_layers_follow_k3s_pattern(layers: int, kda: int, full: int, moe: int) -> None:
    config = ToyConfig(layers=layers)
    assert (config.kda_layers, config.full_attention_layers, config.moe_layers) == (kda, full, moe)
    assert config.is_full_attention(layers - 1)
    assert config.is_full_attention(layers)
    assert not config.is_full_attention(layers - 2)


@pytest.mark.parametrize("layers", [0, 1, 4, 6, 92])
def test_a_depth_that_the_pattern_does_not_have_is_refused(layers: int) -> None:
    with pytest.raises(ValueError, match=r"4n \+ 1 layers"):
        ToyConfig(layers=layers)


def test_a_step_depends_on_every_token_before_it_and_reset_forgets_them() -> None:
    model = ToyK3(SMALL)
    first, second = torch.tensor([3, 4]), torch.tensor([5, 6])
    alone = model.step(second)
    model.reset()
    model.step(first)
    after = model.step(second)
    assert not torch.allclose(alone, after)
    model.reset()
    assert torch.allclose(model.step(second), alone)
    assert torch.isfinite(after).all()


def test_the_state_follows_the_gated_delta_rule() -> None:
    model = ToyK3(SMALL)
    layer = next(m for m in model.modules() if type(m).__name__ == "ToyDeltaAttention")
    layer.decay.weight.fill_(0.0)
    layer.beta.weight.fill_(0.0)
    layer.state.normal_()
    before = layer.state.clone()
    x = torch.randn(SMALL.batch, SMALL.hidden)
    layer(x, 0)
    # sigmoid(0) = 0.5 for decay and beta: S' = S/2 + k (v - k^T S/2)^T / 2.
    mixed = torch.nn.functional.silu((layer.window * layer.conv).sum(-1))
    _, k, v = mixed.view(SMALL.batch, 3, SMALL.heads, SMALL.head_dim).unbind(1)
    k = torch.nn.functional.normalize(k, dim=-1)
    decayed = before / 2
    told = torch.einsum("bhk,bhkv->bhv", k, decayed)
    expected = decayed + torch.einsum("bhk,bhv->bhkv", k, (v - told) / 2)
    torch.testing.assert_close(layer.state, expected)


def test_a_full_cache_is_an_error_and_not_a_wrong_step() -> None:
    model = ToyK3(SMALL)
    model.position = SMALL.capacity
    with pytest.raises(ValueError, match="is full"):
        model.step(torch.zeros(2, dtype=torch.long))
    with pytest.raises(ValueError, match="do not fit"):
        profile_toy(model, Path("unused.json"), steps=1)


def test_the_whole_path_from_ranges_to_a_composition_by_map(tmp_path: Path) -> None:
    model = ToyK3(SMALL)
    definition = toy_definition(SMALL)
    eager = profile_toy(model, tmp_path / "eager.json", steps=3)
    learned = learn_map(eager.trace, definition, device="cpu")
    assert all(check.status != "failed" for check in learned.checks)
    assert 0.5 < learned.injectivity().dispatches < 1.0
    shared = {entry.name: {use.block for use in entry.uses} for entry in learned.shared_names}
    # The residual addition runs between the blocks and, with the same shape, inside the MoE.
    assert {"moe", "other"} <= shared["aten::add [2,64] [2,64]"]

    plain = profile_toy(model, tmp_path / "plain.json", steps=4, ranges=False)
    by_map = compose_trace(plain.trace, definition, device="cpu", block_map=learned)
    by_ranges = compose_trace(eager.trace, definition, device="cpu")
    assert by_map.passed
    assert by_map.unmapped == ()
    assert (by_map.device, by_map.kind, by_map.steps) == ("CPU", "measured", 4)
    assert {block.name: block.dispatches for block in by_map.blocks} == {
        block.name: block.dispatches for block in by_ranges.blocks
    }
    counts = {check.name: check.detail for check in by_map.checks if "count of" in check.name}
    assert counts == {
        "count of KDA state update": "3 a step, expected 3",
        "count of MLA softmax": "2 a step, expected 2",
        "count of expert routing": "4 a step, expected 4",
    }


def test_a_trace_without_ranges_cannot_be_composed_without_a_map(tmp_path: Path) -> None:
    run = profile_toy(ToyK3(SMALL), tmp_path / "plain.json", steps=1, ranges=False)
    with pytest.raises(ValueError, match="inside a range"):
        compose_trace(run.trace, toy_definition(SMALL), device="cpu")


@dataclass(frozen=True)
class StepPair:
    """One step: microseconds of each block from the trace, and timed around its modules."""

    traced_us: dict[str, float]
    timed_us: dict[str, float]

    def covered(self, name: str) -> float:
        return self.traced_us[name] / self.timed_us[name]

    def share_difference(self, name: str) -> float:
        traced = self.traced_us[name] / sum(self.traced_us.values())
        return traced - self.timed_us[name] / sum(self.timed_us.values())


def profiled_steps(tmp_path: Path, steps: int) -> list[StepPair]:
    config = ToyConfig(layers=5)
    model, definition = ToyK3(config), toy_definition(config)
    found = []
    for step in range(steps):
        run = profile_toy(model, tmp_path / f"{step}.json", steps=1, warmup=1)
        composition = compose_trace(run.trace, definition, device="cpu")
        traced = {block.name: block.us for block in composition.blocks}
        found.append(StepPair({name: traced[name] for name in run.timed_us}, run.timed_us))
    return found


def test_the_composition_agrees_with_directly_timed_blocks(tmp_path: Path) -> None:
    found = profiled_steps(tmp_path, STEPS)
    for name in ("kda", "full_attn", "moe", "dense_mlp", "other"):
        assert all(0 < step.covered(name) <= 1 for step in found), name
        assert abs(statistics.median(s.share_difference(name) for s in found)) < SHARE_TOLERANCE
    for name in LARGE_BLOCKS:
        assert max(step.covered(name) for step in found) > LEAST_COVERED, name


def test_that_agreement_is_lost_when_one_block_has_no_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: a misattributed block costs far more than what is tolerated."""
    without_kda = tuple(rule for rule in TOY_RULES if rule.range_name != "K3/kda")

    def attach_fewer(model: torch.nn.Module, rules: tuple[RangeRule, ...], environ: object):  # type: ignore[no-untyped-def]
        return attach(model, without_kda, environ)  # type: ignore[arg-type]

    monkeypatch.setattr("k3bench.attribution.live.toy_profile.attach", attach_fewer)
    found = profiled_steps(tmp_path, 3)
    assert all(step.traced_us["kda"] == 0 for step in found)
    assert statistics.median(s.share_difference("kda") for s in found) < -1.5 * SHARE_TOLERANCE
    assert max(step.covered("other") for step in found) > 1
