"""Profiles the toy on this CPU, times its blocks directly beside, and defines its blocks.

On a CPU there are no kernels with correlation ids. The rule instead: the outermost operators on a
thread are the device work, each launched where it ran (``read_trace(device="cpu")``). What the
interpreter does between two operators is nobody's. A kernel's name tells its tile geometry; here
the operator's name is given its inputs' shapes, for the same reason: without them every linear
layer of every block would be one name. Figures so made are measured, on a CPU.
"""

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from k3bench.attribution.blocks import BlockDefinition, parse_blocks
from k3bench.attribution.live.ranges import SWITCH_VARIABLE, attach
from k3bench.attribution.live.toy import TOY_RULES, ToyConfig, ToyK3

STEP_RANGE = "toy step"
_BLOCK_OF_RANGE = {
    "K3/kda": "kda",
    "K3/full_attn": "full_attn",
    "K3/moe": "moe",
    "K3/dense_mlp": "dense_mlp",
}
RESIDUAL = "other"


@dataclass(frozen=True)
class ToyRun:
    """One profiled run. ``timed_us``: wall-clock microseconds a step of each block, taken around
    the modules in the same steps; the residual is what is left of the step."""

    trace: Path
    steps: int
    timed_us: dict[str, float]

    def timed_shares(self) -> dict[str, float]:
        total = sum(self.timed_us.values())
        return {name: us / total for name, us in self.timed_us.items()}


def toy_definition(config: ToyConfig) -> BlockDefinition:
    """The block definition of a toy."""
    return parse_blocks(toy_blocks(config), "toy-k3")


def toy_blocks(config: ToyConfig) -> str:
    """That definition as TOML: K3's blocks and ranges, counts for the toy's own layers."""
    return f"""\
# A toy with K3's layer pattern: {config.layers} layers.
name = "toy-k3"
title = "K3's layer pattern at toy width, CPU"
residual = "{RESIDUAL}"

[blocks.kda]
layers = {config.kda_layers}
ranges = ["K3/kda"]

[blocks.full_attn]
layers = {config.full_attention_layers}
ranges = ["K3/full_attn"]

[blocks.moe]
layers = {config.moe_layers}
ranges = ["K3/moe"]

[blocks.dense_mlp]
layers = 1
ranges = ["K3/dense_mlp"]
not_within = ["moe"]

[steps]
ranges = ["{STEP_RANGE}"]

[[counts]]
label = "KDA state update"
kernels = ["^aten::addcmul_ "]
per_step = {config.kda_layers}

[[counts]]
label = "MLA softmax"
kernels = ["^aten::softmax "]
per_step = {config.full_attention_layers}

[[counts]]
label = "expert routing"
kernels = ["^aten::topk "]
per_step = {config.moe_layers}
"""


def profile_toy(
    model: ToyK3, path: Path, *, steps: int, ranges: bool = True, warmup: int = 3
) -> ToyRun:
    """Run ``steps`` decode steps under torch's profiler and write the trace to ``path``.

    With ``ranges`` the blocks have theirs, as in an eager run of the study; without, the trace is
    what a map is applied to. Raises ValueError where the toy's cache cannot hold the steps.
    """
    free = model.config.capacity - model.position
    if steps + warmup > free:
        raise ValueError(f"steps: {steps} + {warmup} do not fit in the toy's {free} free tokens")
    tokens = torch.zeros(model.config.batch, dtype=torch.long)
    with _one_thread():
        for _ in range(warmup):
            model.step(tokens)
    switch = {SWITCH_VARIABLE: "1" if ranges else "0"}
    with (
        _one_thread(),
        attach(model, TOY_RULES, switch),
        _timers(model) as timed,
        profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler,
    ):
        start = time.perf_counter()
        for _ in range(steps):
            with record_function(STEP_RANGE):
                model.step(tokens)
        whole_us = (time.perf_counter() - start) * 1e6
    profiler.export_chrome_trace(str(path))
    name_by_shape(path)
    blocks = {name: us / steps for name, us in timed.items()}
    return ToyRun(path, steps, {**blocks, RESIDUAL: whole_us / steps - sum(blocks.values())})


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Operators on one thread: a busy machine must not stretch some of them and not others."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def _timers(model: ToyK3) -> Iterator[dict[str, float]]:
    """Microseconds by block, summed over every call of its modules while the context is open.

    Around ``__call__``, and so around the range inside it; a shared expert is part of its MoE.
    """
    block_of = {rule.class_name: _BLOCK_OF_RANGE[rule.range_name] for rule in TOY_RULES}
    timed = dict.fromkeys(block_of.values(), 0.0)
    began: list[float] = []
    handles = []

    def before(module: Any, inputs: Any) -> None:
        began.append(time.perf_counter())

    def after(module: Any, inputs: Any, output: Any) -> None:
        spent = time.perf_counter() - began.pop()
        if not began:
            timed[block_of[type(module).__name__]] += spent * 1e6

    for module in model.modules():
        if type(module).__name__ in block_of:
            handles.append(module.register_forward_pre_hook(before))
            handles.append(module.register_forward_hook(after))
    try:
        yield timed
    finally:
        for handle in handles:
            handle.remove()


def name_by_shape(path: Path) -> None:
    """Append the shapes of its inputs to every operator's name, in place: ``aten::mm [4,8] [8,2]``.

    For traces of the toy, which are small: the file is read whole.
    """
    document = json.loads(path.read_text(encoding="utf-8"))
    for event in document["traceEvents"]:
        if event.get("cat") == "cpu_op":
            dims = event.get("args", {}).get("Input Dims", [])
            shapes = (json.dumps(shape, separators=(",", ":")) for shape in dims if shape)
            event["name"] = " ".join((event["name"], *shapes))
    path.write_text(json.dumps(document), encoding="utf-8")
