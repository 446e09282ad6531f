"""One clock per device: how to wait for it, time it, and flush its caches."""

from k3bench.measure.backends.base import Backend
from k3bench.measure.backends.select import jax_backend, torch_backend

__all__ = ["Backend", "jax_backend", "torch_backend"]
