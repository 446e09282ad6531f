"""A TPU's clock: wall time, as the published v6e medians were taken.

They include about 0.13 ms of dispatch, and so do ours: the two can be laid side by side. Inputs of
the fixed grid exceed VMEM many times over, so there is no cache to flush.
"""

from dataclasses import dataclass

from k3bench.measure.backends.jax_wall import JaxWall

# jax's device_kind to the name that records carry.
DEVICE_NAMES = {
    "TPU v6 lite": "tpu-v6e",
    "TPU v6e": "tpu-v6e",
    "TPU7x": "tpu7x",
    "TPU v5 lite": "tpu-v5e",
    "TPU v5p": "tpu-v5p",
}


@dataclass(frozen=True)
class JaxTpu(JaxWall):
    """One TPU core through jax."""

    platform: str = "tpu"
