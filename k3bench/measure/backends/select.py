"""Which device this process measures: asked of jax or torch once, when it is first needed."""

import functools

from k3bench.measure.backends.base import Backend
from k3bench.measure.backends.cpu import JaxCpu, TorchCpu
from k3bench.measure.backends.gpu import JaxGpu, TorchGpu, describe_torch_gpu
from k3bench.measure.backends.tpu import DEVICE_NAMES, JaxTpu


@functools.cache
def jax_backend() -> Backend:
    """The clock of jax's default device."""
    import jax

    device = jax.devices()[0]
    if device.platform == "cpu":
        return JaxCpu()
    slug = "-".join(device.device_kind.lower().split())
    if device.platform == "tpu":
        return JaxTpu(device=DEVICE_NAMES.get(device.device_kind, slug))
    return JaxGpu(device=slug)


@functools.cache
def torch_backend() -> Backend:
    """The clock of torch's first GPU, or the CPU's where there is none."""
    import torch

    if not torch.cuda.is_available():
        return TorchCpu()
    properties = torch.cuda.get_device_properties(0)
    device, flush_bytes = describe_torch_gpu(properties.name, properties.L2_cache_size)
    platform = "rocm" if torch.version.hip else "cuda"
    return TorchGpu(
        device=device,
        platform=platform,
        flush_bytes=flush_bytes,
        compute_units=properties.multi_processor_count,
    )
