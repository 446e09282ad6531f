"""Pinned workloads: which lengths every kernel is measured on, by name and by hash.

``get("kda-headline")`` gives a ``Workload``; ``ids("kda-grid")`` the names of a family;
``all_ids()`` every name. Importing this package reads no file and no heavy library.
"""

from workloads import grid, kda_decode, mla, replays  # noqa: F401 - imported to register their families
from workloads.errors import (
    MalformedInputError,
    MissingInputError,
    PinMismatchError,
    UnavailableError,
    WorkloadError,
)
from workloads.model import Call, KdaGeometry, MlaGeometry, Workload
from workloads.registry import all_ids, families, family, family_workloads, get, ids

__all__ = [
    "Call",
    "KdaGeometry",
    "MalformedInputError",
    "MissingInputError",
    "MlaGeometry",
    "PinMismatchError",
    "UnavailableError",
    "Workload",
    "WorkloadError",
    "all_ids",
    "families",
    "family",
    "family_workloads",
    "get",
    "ids",
]
