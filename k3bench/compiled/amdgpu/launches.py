"""From a point to the launches that mla_rocm describes for it; runs in the compiling process."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from k3bench.compiled.amdgpu.point import GpuPoint
from k3bench.compiled.built import UnsupportedError

_PREFIX = "triton_"

# Implementations whose launches mla_rocm describes without a GPU, by operation.
DESCRIBED: Mapping[str, tuple[str, ...]] = {
    "mla-decode": ("triton", "triton_batch_invariant"),
    "mla-prefill": (
        "triton_decompressed",
        "triton_absorbed",
        "triton_chunked_decompressed",
        "triton_chunked_absorbed",
    ),
    "kda-decode": ("triton",),
}


def build(*, target_compute_units: int, **document: Any) -> Sequence[Any]:
    """Launches of a point's JSON, in the order in which they run.

    Raises UnsupportedError where the implementation's launches are not described or it refuses the
    shape, with its reason.
    """
    try:
        import mla_rocm.launches  # noqa: F401
        from mla_rocm.errors import MlaArgumentError
    except ModuleNotFoundError as error:
        # A commit from before the descriptions; anything else that is missing is an error.
        if error.name != "mla_rocm.launches":
            raise
        raise UnsupportedError("this commit's mla_rocm describes no launches") from error
    point = GpuPoint.from_json(document)
    if point.implementation not in DESCRIBED[point.operation]:
        raise UnsupportedError(
            f"{point.implementation}: its launches are not described, only those of "
            f"{', '.join(DESCRIBED[point.operation])}"
        )
    try:
        launches = _BUILDERS[point.operation](point, point.compute_units or target_compute_units)
    except MlaArgumentError as error:
        raise UnsupportedError(str(error)) from error
    if not launches:
        raise UnsupportedError(f"{point.implementation}: nothing is launched for this shape")
    return launches


def _mla_decode(point: GpuPoint, compute_units: int) -> Sequence[Any]:
    from mla_rocm.cases import MlaDecodeCase
    from mla_rocm.launches import decode_launches

    case = MlaDecodeCase(
        context_lengths=point.lengths,
        heads=point.heads,
        page_size=point.page_size,
        num_kv_splits=point.num_kv_splits,
        dtype=point.dtype,
    )
    invariant = point.implementation == "triton_batch_invariant"
    launches: Sequence[Any] = decode_launches(case, compute_units, batch_invariant=invariant)
    return launches


def _mla_prefill(point: GpuPoint, compute_units: int) -> Sequence[Any]:
    del compute_units  # the grid follows from the shape alone
    from mla_rocm.cases import MlaPrefillCase
    from mla_rocm.launches import prefill_launches

    case = MlaPrefillCase(
        new_lengths=point.lengths,
        prefix_lengths=point.prefix_lengths,
        heads=point.heads,
        page_size=point.page_size,
        dtype=point.dtype,
    )
    launches: Sequence[Any] = prefill_launches(case, point.implementation.removeprefix(_PREFIX))
    return launches


def _kda_decode(point: GpuPoint, compute_units: int) -> Sequence[Any]:
    del compute_units  # one workgroup per head and block of columns, whatever the device
    from mla_rocm.kda_case import KdaDecodeCase
    from mla_rocm.launches import kda_decode_launches

    case = KdaDecodeCase(batch=len(point.lengths), heads=point.heads, dtype=point.dtype)
    launches: Sequence[Any] = kda_decode_launches(case)
    return launches


_BUILDERS: Mapping[str, Callable[[GpuPoint, int], Sequence[Any]]] = {
    "mla-decode": _mla_decode,
    "mla-prefill": _mla_prefill,
    "kda-decode": _kda_decode,
}


def implementation_names(operation: str) -> tuple[str, ...]:
    """Every implementation of an operation that mla_rocm knows, described or not."""
    import mla_rocm

    tables = {
        "mla-decode": mla_rocm.DECODE_IMPLEMENTATIONS,
        "mla-prefill": mla_rocm.PREFILL_IMPLEMENTATIONS,
        "kda-decode": mla_rocm.KDA_DECODE_IMPLEMENTATIONS,
    }
    return tuple(dict.fromkeys((*DESCRIBED[operation], *tables[operation])))
