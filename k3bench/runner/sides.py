"""Two commits' kernels in one process: each side has its own modules, and one side is in at a time.

Both commits call their packages by the same names, and code that runs later may import more of them
(a provider, a kernel that is compiled on demand). So a side is entered before any of its code runs:
its modules are put into ``sys.modules``, the other's are taken out.
"""

import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from k3bench.asv_type import (
    KERNEL_ROOMS,
    KERNELS_VARIABLE,
    DeviceBenchmark,
    require_kernels_of_commit,
)
from k3bench.runner.suite import discovered

# What each side imports for itself: the kernels, and the suite, which imports them.
_OWN = (*KERNEL_ROOMS, "benchmarks")

_inside: "Side | None" = None


class Side:
    """One commit's kernels, and the suite of the working tree imported over them.

    Args:
        label: how output calls it: ``base`` or ``head``.
        commit: whose kernels they are.
        kernels: the directory that holds the commit's kernel rooms.
        project_root: the checkout whose ``benchmarks/`` measure.
    """

    def __init__(self, label: str, commit: str, kernels: Path, project_root: Path) -> None:
        self.label = label
        self.commit = commit
        self.kernels = kernels
        self.project_root = project_root
        self._modules: dict[str, ModuleType] = {}

    def enter(self) -> None:
        """Makes this side's modules the ones that imports find; cheap where it is in already."""
        global _inside
        if _inside is self:
            return
        if _inside is not None:
            _inside._leave()
        sys.modules.update(self._modules)
        sys.path.insert(0, str(self.kernels))
        os.environ[KERNELS_VARIABLE] = str(self.kernels)
        os.environ["ASV_COMMIT"] = self.commit
        _inside = self

    def _leave(self) -> None:
        mine = [name for name in sys.modules if name.partition(".")[0] in _OWN]
        self._modules = {name: sys.modules.pop(name) for name in mine}
        sys.path.remove(str(self.kernels))

    def benchmarks(self) -> dict[str, Any]:
        """This side's ``device_*`` benchmarks by name; enters the side.

        Raises:
            PointFailedError: the commit lacks a kernel room that the suite imports.
        """
        self.enter()
        found = {
            benchmark.name: benchmark
            for benchmark in discovered(self.project_root)
            if isinstance(benchmark, DeviceBenchmark)
        }
        require_kernels_of_commit()
        return found
