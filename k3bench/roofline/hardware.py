"""Peak rates of devices: the one table of the project, read from devices/*.toml."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

from k3bench.roofline.definitions import (
    Figure,
    Table,
    figure,
    figures,
    read_definition,
    shipped_names,
)
from k3bench.roofline.errors import RooflineError


@dataclass(frozen=True)
class Hardware:
    """One device as its maker's documents state it; rates are peaks unless a name says otherwise.

    Attributes:
        name: as ``--hardware`` takes it; the ledger's name of the device where it has one.
        title: for readers.
        devices: how many devices of a framework the figures cover (a TPU7x chip is two).
        matrix: FLOP/s of the matrix units (tensor cores, MXU, Cube) by operand dtype, dense, with
            fp32 accumulation.
        vector: FLOP/s of the vector units in fp32, a fused multiply-add as 2.
        hbm: bytes/s of the data sheet.
        streamed: bytes/s that a plain read reaches.
        capacity: bytes of HBM (of DRAM for a CPU).
        on_chip: bytes of the memory that kernels place data in, over the whole device, by its name.
        link: bytes/s that a device sends to one neighbour, in one direction.
        separate_units: matrix and vector units do not share registers: whatever passes between them
            goes through memory outside of the cores (Ascend's Cube and Vector).
    """

    name: str
    title: str
    devices: int
    matrix: Mapping[str, Figure] = field(repr=False)
    vector: Figure = field(repr=False)
    hbm: Figure = field(repr=False)
    streamed: Figure = field(repr=False)
    capacity: Figure = field(repr=False)
    on_chip: Mapping[str, Figure] = field(repr=False)
    link: Figure = field(repr=False)
    separate_units: bool = False

    def matrix_flops_per_s(self, dtype: str = "bf16") -> float:
        """The matrix peak; RooflineError where the device states none for ``dtype``."""
        if dtype not in self.matrix:
            raise RooflineError(
                f"{self.name} states no matrix peak for {dtype!r}: use {', '.join(self.matrix)}"
            )
        return self.matrix[dtype].value

    def assumptions(self) -> dict[str, str]:
        """What no document states, with the reason for the value taken."""
        named = {
            **{f"matrix.{dtype}": found for dtype, found in self.matrix.items()},
            **{f"on_chip.{name}": found for name, found in self.on_chip.items()},
            **{name: getattr(self, name) for name in _SINGLE},
        }
        return {
            name: f"{found.value:.4g}: {found.source}"
            for name, found in named.items()
            if found.assumed
        }


_SINGLE = ("vector", "hbm", "streamed", "capacity", "link")


def hardware_names() -> tuple[str, ...]:
    """Names of the shipped devices."""
    return shipped_names("devices")


@functools.cache
def get_hardware(name: str) -> Hardware:
    """A shipped device, or one that a path to a TOML file describes.

    Raises RooflineError naming the shipped ones, or the file and the key that is wrong.
    """
    label, values = read_definition("devices", name)
    table = Table(label, values)
    matrix = figures(table, "matrix")
    made = Hardware(
        name=table.text("name"),
        title=table.text("title"),
        devices=table.count("devices", default=1),
        matrix=matrix,
        on_chip=figures(table, "on_chip"),
        separate_units=table.flag("separate_units"),
        **{key: figure(table, key) for key in _SINGLE},
    )
    table.done()
    if "bf16" not in matrix:
        raise RooflineError(f"{label}: matrix: bf16 is missing")
    return made
