"""From a point to the launches that mla_rocm describes for it; runs in the compiling process."""

import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from k3bench.compiled.amdgpu.point import GpuPoint
from k3bench.compiled.built import UnsupportedError

_PREFIX = "triton_"

# sglang's decode by implementation: by default, as tuned for gfx950, and its work-stealing kernel.
_SGLANG_DECODE = {"sglang": "default", "sglang_tuned": "tuned", "sglang_lean": "lean"}
PROVIDER = "sglang"

# Implementations whose launches mla_rocm describes without a GPU, by operation.
DESCRIBED: Mapping[str, tuple[str, ...]] = {
    "mla-decode": ("triton", "triton_batch_invariant", *_SGLANG_DECODE),
    "mla-prefill": (
        "triton_decompressed",
        "triton_absorbed",
        "triton_chunked_decompressed",
        "triton_chunked_absorbed",
        "sglang_extend",
    ),
    "kda-decode": ("triton", "sglang"),
}


@dataclass(frozen=True)
class _Machine:
    """What a point is described for: target, compute units, and the cache pool where it matters."""

    arch: str | int
    compute_units: int
    pool_tokens: int | None
    instead: Mapping[str, int]


def build(
    *,
    target_arch: str | int,
    target_compute_units: int,
    pool_tokens: int | None = None,
    **document: Any,
) -> Sequence[Any]:
    """Launches of a point's JSON, in the order in which they run.

    ``pool_tokens`` are those of a server's cache; without it the cache holds the point's own.

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
    asked = {"BLOCK_N": point.block_n, "num_warps": point.num_warps, "num_stages": point.num_stages}
    machine = _Machine(
        arch=target_arch,
        compute_units=point.compute_units or target_compute_units,
        pool_tokens=pool_tokens,
        instead={name: value for name, value in asked.items() if value is not None},
    )
    try:
        launches = _BUILDERS[point.operation](point, machine)
    except MlaArgumentError as error:
        raise UnsupportedError(str(error)) from error
    if not launches:
        raise UnsupportedError(f"{point.implementation}: nothing is launched for this shape")
    return launches


def _with_options(launches: Sequence[Any], instead: Mapping[str, int]) -> Sequence[Any]:
    """Our launches with other warps or stages for the first; its tile belongs to the plan."""
    if "BLOCK_N" in instead:
        raise UnsupportedError("block_n: our tiles are the plan's; give it for a provider's launch")
    if not instead or not launches:
        return launches
    first, *others = launches
    return [replace(first, options={**first.options, **instead}), *others]


def _mla_decode(point: GpuPoint, machine: _Machine) -> Sequence[Any]:
    from mla_rocm.cases import MlaDecodeCase
    from mla_rocm.launches import decode_launches

    case = MlaDecodeCase(
        context_lengths=point.lengths,
        heads=point.heads,
        page_size=point.page_size,
        num_kv_splits=point.num_kv_splits,
        dtype=point.dtype,
    )
    launches: Sequence[Any]
    if variant := _SGLANG_DECODE.get(point.implementation):
        described, amd = _sglang(machine)
        launches = described.decode_launches(case, amd, variant)
    else:
        invariant = point.implementation == "triton_batch_invariant"
        launches = decode_launches(case, machine.compute_units, batch_invariant=invariant)
        launches = _with_options(launches, machine.instead)
    return launches


def _mla_prefill(point: GpuPoint, machine: _Machine) -> Sequence[Any]:
    from mla_rocm.cases import MlaPrefillCase
    from mla_rocm.launches import prefill_launches

    case = MlaPrefillCase(
        new_lengths=point.lengths,
        prefix_lengths=point.prefix_lengths,
        heads=point.heads,
        page_size=point.page_size,
        dtype=point.dtype,
    )
    launches: Sequence[Any]
    if point.implementation.startswith(PROVIDER):
        described, amd = _sglang(machine)
        launches = described.extend_launches(case, amd)
    else:
        launches = prefill_launches(case, point.implementation.removeprefix(_PREFIX))
        launches = _with_options(launches, machine.instead)
    return launches


def _kda_decode(point: GpuPoint, machine: _Machine) -> Sequence[Any]:
    from mla_rocm.kda_case import KdaDecodeCase
    from mla_rocm.launches import kda_decode_launches

    case = KdaDecodeCase(batch=len(point.lengths), heads=point.heads, dtype=point.dtype)
    launches: Sequence[Any]
    if point.implementation.startswith(PROVIDER):
        described, amd = _sglang(machine)
        launches = described.kda_launches(case, amd)
    else:
        launches = _with_options(kda_decode_launches(case), machine.instead)
    return launches


def _sglang(machine: _Machine) -> tuple[Any, Any]:
    """The module that describes sglang's launches, and the target as it takes it."""
    try:
        from mla_rocm.providers import sglang_kernels, sglang_launches
    except ModuleNotFoundError as error:
        if error.name != "mla_rocm.providers.sglang_launches":
            raise
        raise UnsupportedError("this commit describes no launches of sglang's") from error
    if importlib.util.find_spec(PROVIDER) is None:
        raise UnsupportedError(sglang_kernels.NOT_INSTALLED)
    try:
        importlib.import_module(PROVIDER)
    except ImportError as error:
        raise UnsupportedError(f"sglang cannot be imported: {error}") from error
    return sglang_launches, sglang_launches.AmdTarget(
        str(machine.arch), machine.compute_units, machine.pool_tokens, machine.instead
    )


_BUILDERS: Mapping[str, Callable[[GpuPoint, _Machine], Sequence[Any]]] = {
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
