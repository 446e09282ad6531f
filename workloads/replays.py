"""Replays: lists of calls whose lengths were drawn from a distribution or read from a trace.

``sharegpt-k3`` replays the drawn lists of the ShareGPT-derived lengths, ``sharegpt-k3-surrogate``
those of the surrogate; both are committed and need no dataset. A list imported on this machine
gives ``NAME/all`` (every prompt, one a call) and, where it is not one of those two, ``NAME/B8`` and
so on by the same draw.
"""

from collections.abc import Iterator, Sequence

from workloads import draws, pins, surrogate
from workloads.errors import WorkloadError
from workloads.grid import K3_PER_CHIP
from workloads.model import Call, Provenance, Workload, prefill
from workloads.registry import family
from workloads.store import SavedLengths

TRACE_FORMS = ("azure", "mooncake", "burstgpt")


@family("sharegpt-k3")
def sharegpt_k3() -> Iterator[Workload]:
    """The seven lists drawn from the ShareGPT-derived lengths."""
    drawn = draws.load_committed(draws.REAL_FILE)
    for batch, sampled in drawn.lists.items():
        yield _replay(
            "sharegpt-k3",
            "sharegpt-derived",
            draws.REAL_LABEL,
            batch,
            sampled,
            "ShareGPT-derived prompt lengths",
        )


@family("sharegpt-k3-surrogate")
def sharegpt_k3_surrogate() -> Iterator[Workload]:
    """The seven lists drawn from the surrogate of the ShareGPT-derived lengths."""
    drawn = draws.load_committed(draws.SURROGATE_FILE)
    for batch, sampled in drawn.lists.items():
        yield _replay(
            "sharegpt-k3-surrogate",
            "surrogate",
            surrogate.LABEL,
            batch,
            sampled,
            "surrogate prompt lengths",
        )


def saved_ids(saved: SavedLengths) -> tuple[str, ...]:
    """The ids that an imported list gives."""
    whole = (f"{saved.name}/all",)
    if saved.identity != "unpinned" or len(saved.lengths) < 2:
        return whole
    return whole + tuple(f"{saved.name}/B{batch}" for batch in pins.DRAW_BATCH_SIZES)


def saved_workload(saved: SavedLengths, workload_id: str) -> Workload:
    """One workload of an imported list."""
    provenance, label = _standing(saved)
    suffix = workload_id.partition("/")[2]
    if suffix == "all":
        return Workload(
            id=workload_id,
            kind="kda-prefill",
            provenance=provenance,
            geometry=K3_PER_CHIP,
            calls=tuple(prefill(length) for length in saved.lengths),
            label=label,
            description=f"{len(saved.lengths):,} prompts of {label}, one a call, in file order",
        )
    # Drawn from the sorted list: the order of an imported file is an accident.
    drawn = draws.draw(sorted(saved.lengths), label)
    for batch, sampled in drawn.lists.items():
        if suffix == f"B{batch}":
            return _replay(saved.name, provenance, label, batch, sampled, label)
    raise WorkloadError(f"imported list {saved.name!r} gives no workload {workload_id!r}")


def _standing(saved: SavedLengths) -> tuple[Provenance, str]:
    if saved.identity == "pinned":
        return "sharegpt-derived", draws.REAL_LABEL
    if saved.identity == "surrogate":
        return "surrogate", surrogate.LABEL
    if saved.form in TRACE_FORMS:
        return "trace", f"imported {saved.form} trace {saved.name!r}"
    return "imported", f"imported list {saved.name!r}, not the pinned distribution"


def _replay(
    name: str,
    provenance: Provenance,
    label: str,
    batch: int,
    sampled: Sequence[int],
    lengths_of: str,
) -> Workload:
    calls: tuple[Call, ...] = tuple(prefill(*(length,) * batch) for length in sampled)
    return Workload(
        id=f"{name}/B{batch}",
        kind="kda-prefill",
        provenance=provenance,
        geometry=K3_PER_CHIP,
        calls=calls,
        label=label,
        description=f"KDA prefill replay, {len(calls)} batches of {batch} equal sequences, "
        f"{lengths_of}",
    )
