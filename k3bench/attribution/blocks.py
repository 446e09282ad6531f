"""Block definitions: the TOML that says which ranges, modules and kernels make which block.

``load_blocks`` takes the name of a shipped definition (kimi-k3, kimi-linear, generic-decoder) or a
path. docs/attribution.md describes every key; unknown keys are refused, so that a misspelt rule
cannot be a rule that never fires.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any

from k3bench.attribution.composition import Phase
from k3bench.attribution.errors import DefinitionError, RequestError

DEFAULT_TOTAL_BAND = {"decode": (0.90, 1.10), "prefill": (0.97, 1.03)}


@dataclass(frozen=True)
class Component:
    """A named part of a block, by kernel name; what no component claims is "misc"."""

    name: str
    kernels: re.Pattern[str]


@dataclass(frozen=True)
class Block:
    """One cost centre.

    A kernel belongs here when the innermost range or module around its launch matches ``ranges``
    or ``modules`` (whole names), or, outside of every range, when its name contains a match of
    ``kernels``. A range inside one of the blocks ``not_within`` is not seen. ``counted_in`` adds
    the finished block to another one, by phase, as a published table did.
    """

    name: str
    ranges: re.Pattern[str] | None = None
    modules: re.Pattern[str] | None = None
    kernels: re.Pattern[str] | None = None
    not_within: tuple[str, ...] = ()
    layers: int | None = None
    counted_in: Mapping[str, str] = field(default_factory=dict)
    components: tuple[Component, ...] = ()


@dataclass(frozen=True)
class StructuralCount:
    """How often kernels that match must run in a step, because the model has so many layers."""

    label: str
    kernels: re.Pattern[str]
    per_step: int
    phases: tuple[str, ...]


@dataclass(frozen=True)
class MlaForm:
    """An MLA prefill form, known by its launch: BLOCK_M = tokens / grid z.

    ``qk_dim`` and ``v_dim`` are elements per head, 192 and 128 for the decompressed form.
    """

    form: str
    kernels: re.Pattern[str]
    block_m: int
    qk_dim: int
    v_dim: int


@dataclass(frozen=True)
class Traffic:
    """HBM bytes that one block must move in a decode step, and the kernels that move them.

    Bytes of a step = layers * (bytes_per_layer + tokens * bytes_per_layer_and_token).
    """

    block: str
    label: str
    kernels: re.Pattern[str]
    layers: int
    bytes_per_layer: float
    bytes_per_layer_and_token: float

    def step_bytes(self, tokens: int) -> float:
        return self.layers * (self.bytes_per_layer + tokens * self.bytes_per_layer_and_token)


@dataclass(frozen=True)
class BlockDefinition:
    """A whole definition; ``residual`` is the block of device work outside of every range."""

    name: str
    title: str
    residual: str
    blocks: tuple[Block, ...]
    collectives: re.Pattern[str] | None = None
    counts: tuple[StructuralCount, ...] = ()
    total_band: Mapping[str, tuple[float, float]] = field(
        default_factory=lambda: dict(DEFAULT_TOTAL_BAND)
    )
    step_ranges: re.Pattern[str] | None = None
    forward_boundary: re.Pattern[str] | None = None
    chunk_tokens: int | None = None
    attention_heads: int | None = None
    mla_forms: tuple[MlaForm, ...] = ()
    traffic: tuple[Traffic, ...] = ()
    hbm_peak_bytes_per_s: float | None = None

    @cached_property
    def block_names(self) -> tuple[str, ...]:
        """Every block in the definition's order, the residual last."""
        return (*(b.name for b in self.blocks if b.name != self.residual), self.residual)

    def block(self, name: str) -> Block:
        return next((b for b in self.blocks if b.name == name), Block(name))

    def is_collective(self, kernel: str) -> bool:
        return self.collectives is not None and self.collectives.search(kernel) is not None

    def block_of_range(self, name: str, *, module: bool) -> str | None:
        """The block whose ranges, or modules, match the whole name; the first one wins."""
        for block in self.blocks:
            pattern = block.modules if module else block.ranges
            if pattern is not None and pattern.fullmatch(name):
                return block.name
        return None

    def block_by_name_rule(self, kernel: str) -> str | None:
        """The block whose kernel-name rule matches; the first one wins."""
        for block in self.blocks:
            if block.kernels is not None and block.kernels.search(kernel):
                return block.name
        return None

    def component(self, block: str, kernel: str) -> str:
        for component in self.block(block).components:
            if component.kernels.search(kernel):
                return component.name
        return "misc"

    def counted_in(self, block: str, phase: Phase) -> str:
        return self.block(block).counted_in.get(phase, block)

    def layers(self) -> dict[str, int]:
        return {b.name: b.layers for b in self.blocks if b.layers is not None}


def shipped_definitions() -> tuple[str, ...]:
    """Names of the definitions that come with this package."""
    folder = resources.files("k3bench.attribution") / "blocks"
    return tuple(
        sorted(f.name.removesuffix(".toml") for f in folder.iterdir() if f.name.endswith(".toml"))
    )


def load_blocks(name_or_path: str | Path) -> BlockDefinition:
    """A shipped definition by name, or one of your own by path.

    Raises RequestError for an unknown name, DefinitionError for anything wrong in a file, naming
    the key, and OSError where a path cannot be read.
    """
    text = str(name_or_path)
    if text in shipped_definitions():
        source = resources.files("k3bench.attribution") / "blocks" / f"{text}.toml"
        return parse_blocks(source.read_text("utf-8"), text)
    path = Path(name_or_path)
    if not path.suffix and not path.exists():
        raise RequestError(
            f"no block definition {text!r}: use one of {', '.join(shipped_definitions())}, or a "
            "path to a .toml file"
        )
    try:
        return parse_blocks(path.read_text("utf-8"), path.name)
    except UnicodeDecodeError:
        raise DefinitionError(f"{path.name}: not UTF-8 text") from None


def parse_blocks(text: str, where: str) -> BlockDefinition:
    """The definition in TOML ``text``; ``where`` names it in messages."""
    try:
        top = _Table(tomllib.loads(text), where)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise DefinitionError(f"{where}: not TOML ({error})") from None
    own_name = top.text("name")
    blocks = tuple(_block(name, table) for name, table in top.tables("blocks"))
    if not blocks:
        raise DefinitionError(f"{where}: no [blocks.NAME] table")
    forward, hardware = top.table("forward"), top.table("hardware")
    collectives, steps = top.table("collectives"), top.table("steps")
    peak = hardware.number("hbm_peak_tbps")
    definition = BlockDefinition(
        name=own_name,
        title=top.text("title", ""),
        residual=top.text("residual", "other"),
        blocks=blocks,
        collectives=collectives.patterns("kernels"),
        counts=tuple(_count(table) for table in top.list_of_tables("counts")),
        total_band=_bands(top.table("total")),
        step_ranges=steps.patterns("ranges"),
        forward_boundary=forward.patterns("boundary"),
        chunk_tokens=forward.integer("chunk_tokens"),
        attention_heads=forward.integer("attention_heads_per_rank"),
        mla_forms=tuple(_mla_form(table) for table in top.list_of_tables("mla_forms")),
        traffic=tuple(_traffic(table) for table in top.list_of_tables("traffic")),
        hbm_peak_bytes_per_s=None if peak is None else peak * 1e12,
    )
    for table in (top, forward, hardware, collectives, steps):
        table.refuse_leftovers()
    _check_references(definition, where)
    return definition


def _check_references(definition: BlockDefinition, where: str) -> None:
    known = set(definition.block_names)
    for block in definition.blocks:
        for other in (*block.not_within, *block.counted_in.values()):
            if other not in known:
                raise DefinitionError(f"{where}: blocks.{block.name} names no block {other!r}")
    for traffic in definition.traffic:
        if traffic.block not in known:
            raise DefinitionError(f"{where}: traffic names no block {traffic.block!r}")


def _block(name: str, table: "_Table") -> Block:
    counted_in = table.table("counted_in")
    components = table.table("components")
    made = Block(
        name=name,
        ranges=table.patterns("ranges"),
        modules=table.patterns("modules"),
        kernels=table.patterns("kernels"),
        not_within=table.texts("not_within"),
        layers=table.integer("layers"),
        counted_in={
            phase: counted_in.text(phase) for phase in ("decode", "prefill") if phase in counted_in
        },
        components=tuple(
            Component(part, pattern)
            for part in components.keys_left()
            if (pattern := components.patterns(part))
        ),
    )
    for part in (table, counted_in, components):
        part.refuse_leftovers()
    return made


def _count(table: "_Table") -> StructuralCount:
    phases = table.texts("phases") or ("decode", "prefill")
    if set(phases) - {"decode", "prefill"}:
        raise DefinitionError(f"{table.where}.phases: use decode, prefill")
    made = StructuralCount(
        table.text("label"), table.required_patterns("kernels"), table.count("per_step"), phases
    )
    table.refuse_leftovers()
    return made


def _mla_form(table: "_Table") -> MlaForm:
    made = MlaForm(
        form=table.text("form"),
        kernels=table.required_patterns("kernels"),
        block_m=table.count("block_m"),
        qk_dim=table.count("qk_dim"),
        v_dim=table.count("v_dim"),
    )
    table.refuse_leftovers()
    return made


def _traffic(table: "_Table") -> Traffic:
    made = Traffic(
        block=table.text("block"),
        label=table.text("label"),
        kernels=table.required_patterns("kernels"),
        layers=table.count("layers"),
        bytes_per_layer=table.number("bytes_per_layer") or 0.0,
        bytes_per_layer_and_token=table.number("bytes_per_layer_and_token") or 0.0,
    )
    table.refuse_leftovers()
    return made


def _bands(table: "_Table") -> dict[str, tuple[float, float]]:
    bands = dict(DEFAULT_TOTAL_BAND)
    for phase in bands:
        if phase in table:
            bands[phase] = table.band(phase)
    table.refuse_leftovers()
    return bands


class _Table:
    """A TOML table that is read key by key and remembers which keys nobody asked for."""

    def __init__(self, values: Any, where: str) -> None:
        if not isinstance(values, dict):
            raise DefinitionError(f"{where}: expected a table, found {values!r}")
        self.where = where
        self._left = dict(values)

    def __contains__(self, key: str) -> bool:
        return key in self._left

    def keys_left(self) -> tuple[str, ...]:
        return tuple(self._left)

    def refuse_leftovers(self) -> None:
        if self._left:
            raise DefinitionError(f"{self.where}: unknown key {next(iter(self._left))!r}")

    def table(self, key: str) -> "_Table":
        return _Table(self._left.pop(key, {}), f"{self.where}, {key}")

    def tables(self, key: str) -> list[tuple[str, "_Table"]]:
        inner = self.table(key)
        return [(name, inner.table(name)) for name in inner.keys_left()]

    def list_of_tables(self, key: str) -> list["_Table"]:
        found = self._left.pop(key, [])
        if not isinstance(found, list):
            raise DefinitionError(f"{self.where}, {key}: write it as [[{key}]]")
        return [_Table(item, f"{self.where}, {key}[{n}]") for n, item in enumerate(found)]

    def text(self, key: str, default: str | None = None) -> str:
        value = self._left.pop(key, default)
        if not isinstance(value, str) or (default is None and not value):
            raise DefinitionError(f"{self.where}: {key} must be text, found {value!r}")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self._left.pop(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise DefinitionError(f"{self.where}: {key} must be a list of texts, found {value!r}")
        return tuple(value)

    def number(self, key: str) -> float | None:
        value = self._left.pop(key, None)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e30:
            raise DefinitionError(f"{self.where}: {key} must be a number, found {value!r}")
        return float(value)

    def integer(self, key: str) -> int | None:
        value = self._left.pop(key, None)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 1 << 53:
            raise DefinitionError(f"{self.where}: {key} must be a whole number, found {value!r}")
        return value

    def count(self, key: str) -> int:
        value = self.integer(key)
        if value is None:
            raise DefinitionError(f"{self.where}: {key} is missing")
        return value

    def band(self, key: str) -> tuple[float, float]:
        value = self._left.pop(key)
        if (
            not isinstance(value, list)
            or len(value) != 2
            or not all(isinstance(end, int | float) for end in value)
            or not 0 < value[0] <= value[1]
        ):
            raise DefinitionError(f"{self.where}: {key} must be [low, high], found {value!r}")
        return float(value[0]), float(value[1])

    def patterns(self, key: str) -> re.Pattern[str] | None:
        """One regular expression out of a list of them; None where the key is absent."""
        pieces = self.texts(key)
        for piece in pieces:
            try:
                re.compile(piece)
            except re.error as error:
                raise DefinitionError(
                    f"{self.where}: {key}: {piece!r} is no regular expression ({error})"
                ) from None
        return re.compile("|".join(f"(?:{piece})" for piece in pieces)) if pieces else None

    def required_patterns(self, key: str) -> re.Pattern[str]:
        found = self.patterns(key)
        if found is None:
            raise DefinitionError(f"{self.where}: {key} is missing")
        return found
