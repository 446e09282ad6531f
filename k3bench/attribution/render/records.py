"""Compositions as records of the ledger (docs/data-model.md): one a block, and one for the sum.

Where the trace was taken decides the kind. With the manifest of that machine, captured there or
here, a block is ``measured``: one sample, the mean over the steps of the trace, on the device's
clock. Without one it is somebody else's figure: ``published``, and the source says whose.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from k3bench.attribution.composition import OK, Composition, tidy
from k3bench.attribution.render.names import RenderError, visible
from k3bench.canonical import canonical_json

BENCHMARK = "attribution"
TOTAL = "device_total"
_ID_DIGITS = 32
_VENDOR_WORDS = frozenset({"amd", "nvidia", "instinct", "radeon", "geforce", "graphics"})


@dataclass(frozen=True)
class Provenance:
    """Where the trace comes from: a manifest (its ``manifest_id`` and ``commit``) or a source.

    ``taken_at``: ISO 8601 in UTC.
    """

    taken_at: str
    manifest_id: str | None = None
    commit: str | None = None
    source: str | None = None

    def __post_init__(self) -> None:
        if (self.manifest_id is None) == (self.source is None):
            raise RenderError("say where the trace was taken: by a manifest or by a source")
        if self.manifest_id is not None and self.commit is None:
            raise RenderError(
                "the manifest names no commit, and a measured record needs one: capture it inside "
                "a checkout, or give a source instead"
            )


def records_of(
    composition: Composition,
    provenance: Provenance,
    *,
    engine: str = "sglang",
    batch: int = 1,
    tensor_parallel: int = 1,
) -> list[dict[str, Any]]:
    """The records of one composition.

    The id follows from what was measured and from the traces' hashes: storing the same composition
    twice makes the same records. Raises RenderError where a check failed, the context is not known,
    or there is nothing to store.
    """
    if not composition.passed:
        failed = next(check for check in composition.checks if check.status not in (OK, "skipped"))
        raise RenderError(
            f"{visible(composition.label)}: check {visible(failed.name)} failed "
            f"({visible(failed.detail)}): a composition that does not add up is not stored"
        )
    if composition.input_tokens is None:
        raise RenderError(
            f"{visible(composition.label)}: the input tokens are not known: give --input-tokens"
        )
    workload = _workload(composition, batch, tensor_parallel)
    figures = [
        (block.name, block.us, block.dispatches, block.share) for block in composition.blocks
    ]
    figures.append((TOTAL, composition.total_us, composition.dispatches, 1.0))
    rows = [
        _record(composition, provenance, engine, workload, *figure)
        for figure in figures
        if figure[1] > 0
    ]
    if not rows:
        raise RenderError(f"{visible(composition.label)}: no device time in any block")
    return rows


def _record(
    composition: Composition,
    provenance: Provenance,
    engine: str,
    workload: Mapping[str, str],
    block: str,
    us: float,
    dispatches: float,
    share: float,
) -> dict[str, Any]:
    measured = provenance.manifest_id is not None
    seconds = us / 1e6
    parameters: dict[str, Any] = {
        "context": composition.input_tokens,
        "block": visible(block),
        "definition": visible(composition.definition),
        "method": visible(composition.method),
        "steps": composition.steps,
    }
    figures = {"dispatches": tidy(dispatches), "share": share}
    if not measured:  # a published row has no figures: there, what is no time is a parameter
        parameters, figures = {**parameters, **figures}, {}
    identity = [
        composition.phase,
        parameters,
        engine,
        composition.device,
        dict(workload),
        [source.sha256 for source in composition.sources],
        seconds,
    ]
    text = canonical_json(identity)
    return {
        "id": hashlib.sha256(text.encode()).hexdigest()[:_ID_DIGITS],
        "benchmark": f"{BENCHMARK}.{composition.phase}",
        "parameters": parameters,
        "implementation": engine,
        "kind": "measured" if measured else "published",
        "device": device_slug(composition.device),
        "clock": "wall" if device_slug(composition.device) == "cpu" else "device",
        "preset": None,
        "warmup": None,
        "samples_s": [seconds] if measured else [],
        "median_s": seconds,
        "p10_s": seconds if measured else None,
        "p90_s": seconds if measured else None,
        "n": 1 if measured else 0,
        "compile_s": None,
        "tokens": None,
        "padded_tokens": None,
        "tokens_per_s": None,
        "correctness": _correctness(composition),
        "workload": dict(workload),
        "manifest_id": provenance.manifest_id,
        "commit": provenance.commit,
        "started_at": provenance.taken_at,
        "run_id": None,
        "source": _source(composition, provenance),
        "figures": figures or None,
    }


def _correctness(composition: Composition) -> dict[str, Any]:
    """The composition's own checks: "ok" if any was made, since failed ones do not come here."""
    made = [check.name for check in composition.checks if check.status == OK]
    return {
        "status": "ok" if made else "not_checked",
        "max_abs_error": None,
        "tolerance": None,
        "reference": f"block definition {visible(composition.definition)}" if made else None,
        "detail": visible(f"checked: {', '.join(made)}", 400) if made else None,
    }


def _source(composition: Composition, provenance: Provenance) -> str:
    traces = ", ".join(
        f"{visible(source.name, 80)} (SHA-256 {visible(source.sha256[:12])})"
        for source in composition.sources
    )
    told = "" if provenance.source is None else f"{visible(provenance.source, 400)}; "
    return f"{told}traces {traces}"


def _workload(composition: Composition, batch: int, tensor_parallel: int) -> dict[str, str]:
    """The name and hash of the shape; for Kimi K3 the ones that the published figures have."""
    model = composition.definition.removeprefix("kimi-")
    name = f"{model}-{composition.phase}"
    content = {
        "kind": f"{name}-step" if composition.phase == "decode" else name,
        "context": composition.input_tokens,
        "batch": batch,
        "tensor_parallel": tensor_parallel,
    }
    text = canonical_json(content)
    return {
        "id": f"{visible(name)}/L{composition.input_tokens}_B{batch}",
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
    }


def require_device(composition: Composition, manifest: Mapping[str, Any]) -> None:
    """Refuse a manifest of a machine that has no such device: its trace was taken elsewhere.

    ``manifest``: a valid environment manifest. Every machine has a CPU.
    """
    wanted = device_slug(composition.device)
    accelerators = manifest["environment"]["accelerators"]
    known = {"cpu"} | {
        device_slug(device["name"])
        for vendor in ("amd", "nvidia")
        for device in (accelerators[vendor] or {}).get("devices") or ()
        if device["name"]
    }
    if wanted not in known:
        raise RenderError(
            f"{visible(composition.label)}: taken on {visible(composition.device)}, and the "
            f"manifest's machine has {', '.join(sorted(known))}: give the manifest of the machine "
            "it was taken on, or --source"
        )


def device_slug(name: str) -> str:
    """The ledger's name for a device: "AMD Instinct MI355X" is mi355x, "CPU" is cpu."""
    words = re.findall(r"[a-z0-9]+", visible(name).lower())
    kept = [word for word in words if word not in _VENDOR_WORDS] or words
    if not kept:
        raise RenderError(f"the trace names no device ({visible(name)!r}), and a row needs one")
    return "-".join(kept)
