"""The TPUs that are compiled for: what the compiler must be told, and the hardware's rates."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from k3bench.compiled.errors import CompiledError
from k3bench.roofline.hardware import get_hardware

# Slots of one VLIW bundle, in the column order of the compiler's utilization dump. Each dump
# repeats these capacities, and the parser refuses a dump that states others.
SLOTS: Mapping[str, int] = MappingProxyType(
    {
        "MXU": 2,
        "XLU": 2,
        "VALU": 4,
        "VPOP": 2,
        "EUP": 1,
        "VLOAD": 3,
        "FILL": 3,
        "VSTORE": 2,
        "SPILL": 2,
        "SALU": 2,
    }
)


@dataclass(frozen=True)
class Target:
    """One TPU generation as the ahead-of-time compiler and the cost model see it.

    Attributes:
        name: as ``--target`` takes it.
        topology: jax's topology name; one device of it is compiled for.
        device: the ledger's name of the device.
        clock_hz: bundles issued per second by one TensorCore.
        hbm_bytes_per_s: peak HBM bandwidth of one device.
        scoped_vmem_bytes: what one kernel may allocate unless it asks for another limit.
        slots: capacity of each VLIW slot, per bundle.
        sources: where each figure comes from.
    """

    name: str
    topology: str
    device: str
    clock_hz: float
    hbm_bytes_per_s: float
    scoped_vmem_bytes: int
    sources: Mapping[str, str] = field(repr=False)
    slots: Mapping[str, int] = field(default_factory=lambda: SLOTS, repr=False)
    # The cost model is fitted on v6e medians alone; elsewhere its error is unknown.
    fitted: bool = False


def _hbm_bytes_per_s(device: str) -> float:
    """Of one device of the project's one table: a TPU7x chip is two."""
    hardware = get_hardware(device)
    return hardware.hbm.value / hardware.devices


_SLOT_SOURCE = "== CAPACITY header of the compiler's per-bundle utilization dump"
_VMEM_SOURCE = "limit that the compiler names when a kernel exceeds its scoped allocation"

V6E = Target(
    name="v6e",
    topology="v6e:2x2",
    device="tpu-v6e",
    clock_hz=1.75e9,
    hbm_bytes_per_s=_hbm_bytes_per_s("tpu-v6e"),
    scoped_vmem_bytes=32 << 20,
    fitted=True,
    sources=MappingProxyType(
        {
            "clock_hz": "18 published shape pairs, baseline minus safe_gate: 1.737 to 1.759 GHz",
            "hbm_bytes_per_s": "Google Cloud documentation of TPU v6e: 1640 GB/s a chip",
            "scoped_vmem_bytes": _VMEM_SOURCE,
            "slots": _SLOT_SOURCE,
        }
    ),
)

# No medians of TPU7x were published for these kernels: cycles are the compiler's, the clock is
# v6e's (unconfirmed), so modelled times of this target compare kernels and are no predictions.
TPU7X = Target(
    name="tpu7x",
    topology="tpu7x:2x2x1",
    device="tpu7x",
    clock_hz=1.75e9,
    hbm_bytes_per_s=_hbm_bytes_per_s("tpu7x"),
    scoped_vmem_bytes=32 << 20,
    sources=MappingProxyType(
        {
            "clock_hz": "assumed equal to v6e; not published",
            "hbm_bytes_per_s": "Google Cloud documentation of TPU7x: 7.38 TB/s a chip, two devices",
            "scoped_vmem_bytes": "assumed equal to v6e",
            "slots": _SLOT_SOURCE,
        }
    ),
)

TARGETS: Mapping[str, Target] = MappingProxyType({target.name: target for target in (V6E, TPU7X)})


def get_target(name: str) -> Target:
    """The target of that name; CompiledError naming the known ones."""
    try:
        return TARGETS[name]
    except KeyError:
        raise CompiledError(f"target {name!r}: use one of {', '.join(TARGETS)}") from None
