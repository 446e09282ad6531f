"""Importing kda_tpu: light, and safe to fork after."""

import subprocess
import sys

LIGHT = """
import kda_tpu, threading
from jax._src import xla_bridge
assert not xla_bridge.backends_are_initialized(), "importing touched a device"
assert threading.active_count() == 1, threading.enumerate()
assert "torch" not in __import__("sys").modules
"""

FORK = """
import os, sys
import kda_tpu
child = os.fork()
if child == 0:
    case = kda_tpu.KdaCase((70,), heads=1, head_dim_k=16, head_dim_v=8, dtype="float32")
    inputs = kda_tpu.make_inputs(case)
    bound = kda_tpu.IMPLEMENTATIONS["recurrent_xla"].bind(
        case.lengths, case.gate, heads=1, head_dim_k=16, head_dim_v=8
    )
    outputs = bound.fn(inputs, bound.plan)
    expected = kda_tpu.kda_reference(inputs, case.lengths, case.gate)
    good = kda_tpu.max_abs_error(outputs, expected) <= kda_tpu.tolerance("float32")
    os._exit(0 if good else 1)
_, status = os.waitpid(child, 0)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def run_python(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_importing_touches_no_device_and_starts_no_thread():
    run_python(LIGHT)


def test_a_process_that_imported_it_can_fork_and_the_child_can_compute():
    run_python(FORK)


def test_everything_public_is_there():
    import kda_tpu

    assert sorted(set(kda_tpu.__all__)) == sorted(kda_tpu.__all__)
    assert all(hasattr(kda_tpu, name) for name in kda_tpu.__all__)
