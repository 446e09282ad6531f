"""What a record was made on, as far as its peaks are known: a whole device, or a part of one."""

from dataclasses import dataclass

from k3bench.roofline.hardware import Hardware, get_hardware, hardware_names

# Names that frameworks give a device to the names of devices/*.toml.
_OTHER_NAMES = {"nvidia-h200": "h200"}
# Whose partitions are told by their number of compute units.
_TARGETS = {"mi355x": "gfx950", "mi300x": "gfx942", "h200": "sm_90"}


@dataclass(frozen=True)
class Machine:
    """Attributes:
    hardware: the whole device.
    share: of all of its rates.
    part: which part that is, for readers; empty for the whole.
    """

    hardware: Hardware
    share: float = 1.0
    part: str = ""

    @property
    def hbm_bytes_per_s(self) -> float:
        return self.hardware.hbm.value * self.share

    def dtype_of_peak(self, dtype: str) -> str:
        """The dtype whose matrix peak bounds products of ``dtype``.

        fp16 multiplies as bf16 does, and so does what the device states no peak for.
        """
        return dtype if dtype in self.hardware.matrix else "bf16"

    def matrix_flops_per_s(self, dtype: str = "bf16") -> float:
        return self.hardware.matrix_flops_per_s(self.dtype_of_peak(dtype)) * self.share

    def peaks(self, dtype: str = "bf16") -> str:
        """The denominators in words, with where each comes from."""
        peak = self.dtype_of_peak(dtype)
        named = {"HBM": self.hardware.hbm, f"{peak} matrix": self.hardware.matrix[peak]}
        sources = "; ".join(
            f"{name}, {'assumed' if found.assumed else 'as stated'}: {found.source}"
            for name, found in named.items()
        )
        return f"{self.hardware.title}{self.part}: {sources}"


def machine_of(device: str, compute_units: int | None = None) -> Machine | None:
    """The machine behind a record's device name; None where its peaks are not known.

    ``cpu`` is any CPU: it has no peaks here, although devices/*.toml knows one.

    Args:
        device: as records name it.
        compute_units: of the partition that was used, where it is not the whole device: it gets
            that share of every rate.
    """
    name = _OTHER_NAMES.get(device, device)
    # A name from outside never becomes a path.
    if name not in hardware_names():
        return None
    hardware = get_hardware(name)
    if hardware.devices > 1:
        return Machine(hardware, 1 / hardware.devices, f", one of its {hardware.devices} devices")
    if compute_units is None or name not in _TARGETS:
        return Machine(hardware)
    from k3bench.compiled.amdgpu.targets import get_gpu_target

    whole = get_gpu_target(_TARGETS[name]).compute_units
    if compute_units == whole:
        return Machine(hardware)
    part = f", {compute_units} of {whole} compute units"
    return Machine(hardware, compute_units / whole, part)
