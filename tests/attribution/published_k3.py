"""Turns the published K3 study into the per-kernel counts and times that k3_traces writes.

The study gives counts and times by kernel name at 4K (name_map_4k.json), and by block and component
at every context (summary.json). Here each name's time at a context is its 4K time scaled so that
every component comes out as published; names of several blocks keep one duration in all of them, as
the study assumed when it split them by count.
"""

import json
from collections import defaultdict
from typing import Any

from tests.attribution.k3_traces import KernelSpec
from tests.shared_data import shared_file

STEPS = 24
CONTEXTS = ("4k", "32k", "64k", "512k", "1m")
_FOLDER = "published/k3_mi355x"
_PREFIX = 60
MEMCPY = "Memcpy DtoD (Device -> Device)"
# The one GEMM that KDA and full attention launch with the same tile: 69 + 24 a step.
SHARED_GEMM = "hgemm_bf16_16x64x64x6_SPK2_W1x1x1_BLDS1_TN_AS1_0"
_BLOCKS = {"K3/dense_mlp": "dense_mlp", "K3/kda": "kda", "K3/full_attn": "full_attn"}
_BLOCKS |= {"K3/moe": "moe", "other": None}


def load(name: str) -> Any:
    """A published JSON file; skips the test where it is absent."""
    return json.loads(shared_file(f"{_FOLDER}/{name}").read_text("utf-8"))


def published_text(name: str) -> str:
    return shared_file(f"{_FOLDER}/{name}").read_text("utf-8")


def learning_specs() -> list[KernelSpec]:
    """The eager 4K run as published: counts and times of the name map, strays included."""
    specs = []
    for row in load("name_map_4k.json"):
        for source, dispatches in row["split"].items():
            whole, stray = divmod(dispatches, STEPS)
            us = row["us"] * dispatches / row["n"] / STEPS
            specs.append(KernelSpec(row["name"], _BLOCKS[source], whole, us, stray))
    return specs


def context_specs(label: str) -> list[KernelSpec]:
    """One decode step at a context, such that every published block comes out exactly."""
    entry = next(row for row in load("summary.json")["rows"] if row["label"] == label)
    wanted = entry["detail_us_per_step"]
    rows = load("name_map_4k.json")
    total = _totals(rows, wanted)
    collective = entry["collective_us_per_step"]
    learned = sum(row["us"] for row in rows if row["cls"] == "collective")
    specs = []
    for row in rows:
        us = total.get(row["name"], collective * row["us"] / learned)
        for source, dispatches in row["split"].items():
            specs.append(
                KernelSpec(
                    row["name"],
                    _BLOCKS[source],
                    dispatches // STEPS,
                    us * (dispatches // STEPS) / (row["n"] // STEPS),
                )
            )
    return specs


def _totals(rows: list[Any], wanted: dict[str, dict[str, float]]) -> dict[str, float]:
    """Microseconds a step of every compute kernel name, all its blocks together."""
    share: dict[tuple[str, str], float] = {}
    component: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for row in rows:
        for source, dispatches in row["split"].items():
            if row["cls"] == "collective":
                continue
            key = _component(row, source)
            component[row["name"]].add(key)
            share[row["name"], str(key)] = share.get((row["name"], str(key)), 0.0) + (
                dispatches // STEPS
            ) / (row["n"] // STEPS)
    total = {row["name"]: row["us"] / STEPS for row in rows if row["cls"] != "collective"}
    # Names in one component only are scaled; shared ones are set first, as what is left follows.
    in_other = wanted["other"][MEMCPY]
    total[MEMCPY] = in_other / share[MEMCPY, str(("other", MEMCPY))]
    elementwise = "void at::native::vectorized_elementwise_kernel<8, at::native"
    add, scale = sorted(
        name for name in total if name.startswith(elementwise) and len(component[name]) > 1
    )[::-1]
    assert "CUDAFunctor_add" in add and "AUnaryFunctor" in scale
    key = str(("other", elementwise))
    left = wanted["other"][elementwise] - total[scale] * share[scale, key]
    total[add] = left / share[add, key]
    fixed = {MEMCPY, add, scale, SHARED_GEMM}
    for block, parts in wanted.items():
        for part, us in parts.items():
            key = (block, part)
            names = [name for name, keys in component.items() if key in keys]
            free = [name for name in names if name not in fixed]
            us -= sum(total[name] * share[name, str(key)] for name in names if name in fixed)
            if free:
                factor = us / sum(total[name] for name in free)
                for name in free:
                    total[name] *= factor
            else:
                assert abs(us) < 1e-6, (key, us)
    return total


def _component(row: Any, source: str) -> tuple[str, str]:
    """(block, component) as the study's summary names them."""
    name, kind = row["name"], row["cls"]
    if name in ("_score_kernel", "_combine_kernel"):
        return "attn_residual", name
    if source == "other":
        return "other", name[:_PREFIX]
    if source in ("K3/moe", "K3/dense_mlp"):
        if kind == "gemm":
            return "moe", "shared_expert_gemms"
        if kind == "moe_kernel":
            return "moe", "expert_gemms" if name.startswith("mfma_moe") else "route_sort"
        return "moe", "misc"
    if source == "K3/full_attn":
        stages = {
            "_fwd_grouped_kernel_stage1": "kv_scan_stage1",
            "_fwd_kernel_stage2": "split_reduce_stage2",
        }
        return "full_attn", stages.get(name, "projections" if kind == "gemm" else "misc")
    parts = {
        "fused_recurrent_kda_packed_decode_kernel": "recurrent_state_update",
        "_causal_conv1d_update_kernel": "conv_short",
        "layer_norm_gated_fwd_kernel": "gated_out_norm",
    }
    return "kda", parts.get(name, "projections" if kind == "gemm" else "misc")
