"""Reads compositions back from the JSON that `k3bench attribute apply --json` wrote."""

import json
import math
from pathlib import Path
from typing import Any

from k3bench.attribution.composition import (
    FAILED,
    OK,
    SKIPPED,
    BlockShare,
    CheckOutcome,
    Composition,
    KernelShare,
    SourceFile,
    Unmapped,
)
from k3bench.attribution.render.names import RenderError, visible

_MAX_BYTES = 64 << 20
# Shares and totals are written in full precision; anything looser was edited by hand.
_ADDS_UP = 1e-6


def load_composition(path: Path) -> Composition:
    """One composition. Raises RenderError for a file that is none or was refused when it was made,
    and OSError where it cannot be read."""
    if path.stat().st_size > _MAX_BYTES:
        raise RenderError(f"{path.name}: over {_MAX_BYTES >> 20} MiB: no composition is that large")
    try:
        document = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise RenderError(f"{path.name}: not JSON: {visible(str(error))}") from error
    try:
        return composition_of(document)
    except RenderError as error:
        raise RenderError(f"{path.name}: {error}") from error


def composition_of(document: Any) -> Composition:
    """The inverse of ``Composition.to_json``. Raises RenderError naming the field."""
    top = _Object(document, "composition")
    if top.get("refused"):
        raise RenderError("this composition was refused: one of its checks failed")
    phase = top.text("phase")
    if phase not in ("decode", "prefill"):
        raise RenderError(f"phase: {visible(phase)}: expected decode or prefill")
    if top.text("kind") != "measured":
        raise RenderError(f"kind: {visible(top.text('kind'))}: expected measured")
    blocks = top.get("blocks")
    if not isinstance(blocks, dict) or not blocks:
        raise RenderError("blocks: expected an object with a block at least")
    left_out = _Object(top.get("collectives_excluded"), "collectives_excluded")
    composition = Composition(
        label=top.text("label"),
        phase="decode" if phase == "decode" else "prefill",
        device=top.text("device"),
        steps=top.count("steps", least=1),
        blocks=tuple(_block(name, value) for name, value in blocks.items()),
        total_us=top.number("total_us"),
        method=top.text("method"),
        definition=top.text("definition"),
        sources=tuple(
            SourceFile(o.text("name"), o.count("size_bytes"), o.text("sha256"))
            for o in top.objects("sources")
        ),
        unmapped=tuple(
            Unmapped(o.text("name"), o.number("dispatches"), o.number("us"))
            for o in top.objects("unmapped")
        ),
        checks=tuple(_check(o) for o in top.objects("checks")),
        kernels=tuple(_kernel(o) for o in top.objects("kernels", optional=True)),
        excluded_us=left_out.number("us"),
        excluded_dispatches=left_out.number("dispatches"),
        outside_us=top.number("outside_steps_us"),
        input_tokens=None if top.get("input_tokens") is None else top.count("input_tokens"),
        chunks=None if top.get("chunks") is None else top.count("chunks"),
        measured_us=None if top.get("measured_us") is None else top.number("measured_us"),
        notes=tuple(top.texts("notes")),
    )
    _require_sum(composition)
    return composition


def _require_sum(composition: Composition) -> None:
    total = math.fsum(block.us for block in composition.blocks)
    if not math.isclose(total, composition.total_us, rel_tol=_ADDS_UP, abs_tol=1e-9):
        raise RenderError(f"total_us: is {composition.total_us}, but the blocks add to {total}")
    for block in composition.blocks:
        if total and not math.isclose(block.share, block.us / total, abs_tol=_ADDS_UP):
            raise RenderError(
                f"blocks.{visible(block.name)}.share: is {block.share}, but us / total_us is "
                f"{block.us / total}"
            )


def _block(name: str, value: Any) -> BlockShare:
    o = _Object(value, f"blocks.{visible(name)}")
    return BlockShare(
        name=name,
        dispatches=o.number("dispatches"),
        us=o.number("us"),
        share=o.number("share"),
        layers=None if o.get("layers") is None else o.count("layers", least=1),
        shared_us=0.0 if o.get("shared_us") is None else o.number("shared_us"),
    )


def _check(o: "_Object") -> CheckOutcome:
    status = o.text("status")
    for known in (OK, FAILED, SKIPPED):
        if status == known:
            return CheckOutcome(o.text("name"), known, o.text("detail"))
    raise RenderError(f"{o.where}.status: {visible(status)}: expected ok, failed or skipped")


def _kernel(o: "_Object") -> KernelShare:
    return KernelShare(
        o.text("name"),
        o.text("block"),
        o.number("dispatches"),
        o.number("us"),
        shared=o.get("shared") is True,
        split=o.text("split") if o.get("split") is not None else "",
    )


class _Object:
    """A JSON object whose fields are read by type; every refusal names the field."""

    def __init__(self, value: Any, where: str) -> None:
        if not isinstance(value, dict):
            raise RenderError(f"{where}: expected an object")
        self._value = value
        self.where = where

    def get(self, key: str) -> Any:
        return self._value.get(key)

    def text(self, key: str) -> str:
        value = self.get(key)
        if not isinstance(value, str):
            raise RenderError(f"{self.where}.{key}: expected a string")
        return value

    def number(self, key: str) -> float:
        value = self.get(key)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise RenderError(f"{self.where}.{key}: expected a number")
        if not 0 <= value < 1e18:  # also refuses NaN, and integers that no float holds
            raise RenderError(f"{self.where}.{key}: expected a number from 0 to 1e18")
        return float(value)

    def count(self, key: str, least: int = 0) -> int:
        value = self.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 1 << 63:
            raise RenderError(f"{self.where}.{key}: expected an integer from {least}")
        return value

    def texts(self, key: str) -> list[str]:
        value = self.get(key)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise RenderError(f"{self.where}.{key}: expected an array of strings")
        return value

    def objects(self, key: str, *, optional: bool = False) -> "list[_Object]":
        value = self.get(key)
        if value is None and optional:
            return []
        if not isinstance(value, list):
            raise RenderError(f"{self.where}.{key}: expected an array")
        return [_Object(item, f"{self.where}.{key}[{n}]") for n, item in enumerate(value)]
