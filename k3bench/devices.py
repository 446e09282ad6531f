"""Which accelerators this machine has, by its device nodes alone: nothing is initialised."""

from collections.abc import Mapping
from pathlib import Path


def has_tpu(root: Path = Path("/")) -> bool:
    """Whether a TPU is attached: /dev/accel* (up to v5), or a vfio group (v5e and later)."""
    dev = root / "dev"
    return any(dev.glob("accel[0-9]*")) or any(dev.glob("vfio/[0-9]*"))


def has_amd_gpu(root: Path = Path("/")) -> bool:
    """Whether an AMD compute device is attached (the ROCm kernel driver's node)."""
    return (root / "dev" / "kfd").exists()


def has_nvidia_gpu(root: Path = Path("/")) -> bool:
    """Whether an NVIDIA device is attached."""
    return (root / "dev" / "nvidiactl").exists()


def environment_for_this_machine(
    environ: Mapping[str, str], root: Path = Path("/")
) -> dict[str, str]:
    """Variables that keep jax from searching for devices that are not there.

    libtpu is installed on CPU machines as a compiler; without these, jax would wait for a TPU's
    metadata server. A variable that the user set is never changed.
    """
    if has_tpu(root):
        return {}
    wanted = {"TPU_SKIP_MDS_QUERY": "1"}
    if not has_amd_gpu(root) and not has_nvidia_gpu(root):
        wanted["JAX_PLATFORMS"] = "cpu"
    return {name: value for name, value in wanted.items() if name not in environ}
