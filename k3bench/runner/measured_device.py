"""Which devices this machine measures: ``python -m k3bench.runner.measured_device WANTED``.

Prints their names as records carry them; exit code 0 if WANTED is among them, else 2.
"""

import os
import sys

from k3bench.devices import environment_for_this_machine
from k3bench.runner.lock import devices_to_lock, exclusive


def measured_devices() -> list[str]:
    """The devices of jax's and torch's clocks in this environment; starts both runtimes."""
    os.environ.update(environment_for_this_machine(os.environ))
    from k3bench.measure.backends import jax_backend, torch_backend

    with exclusive(devices_to_lock("smoke"), until_exit=True):
        return sorted({jax_backend().device, torch_backend().device})


def main(wanted: str) -> int:
    """Prints the names; the exit code says whether ``wanted`` is one."""
    found = measured_devices()
    print(", ".join(found))
    return 0 if wanted in found else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
