"""The clocks: devices are named as records name them, and outputs are waited for."""

import jax
import jax.numpy as jnp
import pytest

from k3bench.measure.backends import jax_backend, torch_backend
from k3bench.measure.backends.gpu import describe_torch_gpu


def test_a_machine_without_accelerator_is_a_cpu_and_says_so() -> None:
    assert jax_backend().device == "cpu"
    assert torch_backend().device == "cpu"
    assert jax_backend().clock == "wall"


def test_a_jax_sample_ends_only_when_every_output_is_computed() -> None:
    # A chain far longer than its dispatch: a clock that did not wait would return before its end.
    @jax.jit
    def slow(x):
        return x, jax.lax.fori_loop(0, 300, lambda _, y: jnp.sin(y @ y), x)

    outputs = []

    def call():
        outputs.append(slow(jnp.ones((256, 256))))
        return outputs[-1]

    seconds = jax_backend().time(call)
    assert all(array.is_ready() for array in outputs[-1])
    assert seconds > 0


@pytest.mark.parametrize(
    ("name", "l2", "expected"),
    [
        ("AMD Instinct MI355X", 4 << 20, ("mi355x", 512 << 20)),
        ("AMD Instinct MI300X VF", 4 << 20, ("mi300x", 512 << 20)),
        ("NVIDIA H200", 60 << 20, ("nvidia-h200", 120 << 20)),
    ],
)
def test_gpu_flush_covers_twice_the_last_level_cache(
    name: str, l2: int, expected: tuple[str, int]
) -> None:
    assert describe_torch_gpu(name, l2) == expected
