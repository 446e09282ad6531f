"""How often: warm-up and repeats, by a named preset.

The presets are the published ones (device 20/100, ladder 5/20) and one that finishes on a laptop.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass

PRESET_VARIABLE = "K3BENCH_PRESET"
DEFAULT_PRESET = "smoke"


class ProtocolError(ValueError):
    """A preset or a repeat count that cannot be measured with."""


@dataclass(frozen=True)
class Protocol:
    """One way of measuring.

    Attributes:
        preset: the name that the record carries.
        warmup: untimed calls of every implementation before the first sample.
        repeat: samples per implementation.
    """

    preset: str
    warmup: int
    repeat: int

    def __post_init__(self) -> None:
        if self.warmup < 0 or self.repeat < 1:
            raise ProtocolError(
                f"protocol {self.preset!r}: warm-up {self.warmup} and repeat {self.repeat} cannot "
                "be measured; warm-up must be at least 0 and repeat at least 1"
            )


# smoke: ten samples give a median and an honest spread, not a gate; see docs/protocol.md.
PRESETS: Mapping[str, Protocol] = {
    "smoke": Protocol("smoke", warmup=2, repeat=10),
    "ladder": Protocol("ladder", warmup=5, repeat=20),
    "device": Protocol("device", warmup=20, repeat=100),
}


def preset_name(environ: Mapping[str, str] | None = None) -> str:
    """The preset that the environment asks for; ``smoke`` where it asks for none.

    Raises:
        ProtocolError: the variable names no preset.
    """
    environ = os.environ if environ is None else environ
    name = environ.get(PRESET_VARIABLE, "") or DEFAULT_PRESET
    if name not in PRESETS:
        raise ProtocolError(
            f"{PRESET_VARIABLE}={name}: no such preset; use one of {', '.join(PRESETS)}"
        )
    return name


def resolve_protocol(
    preset: str, *, warmup: int | None = None, repeat: int | None = None, quick: bool = False
) -> Protocol:
    """The protocol of a preset, with the benchmark's or the user's overrides applied.

    Args:
        preset: a name from PRESETS.
        warmup: the benchmark's own count; the preset's where None.
        repeat: ``asv run -a repeat=N``, or the benchmark's own count; the preset's where None.
        quick: ``asv run --quick``: one sample, no warm-up, and the preset is called ``quick`` so
            that nobody takes the figure for a measurement under the preset's protocol.
    """
    if quick:
        return Protocol("quick", warmup=0, repeat=1)
    base = PRESETS[preset]
    return Protocol(
        preset,
        warmup=base.warmup if warmup is None else warmup,
        repeat=base.repeat if repeat is None else repeat,
    )
