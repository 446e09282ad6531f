"""From a stored record to the call that it timed: for rows from before records said it themselves.

A workload's id says little: its lengths are looked up among the pinned ones, and taken only where
the record's hash is that of the same lengths. What cannot be told has no call.
"""

import functools
import hashlib
import re
from collections.abc import Mapping
from typing import Any

import workloads
from k3bench.roofline.calls import (
    KernelCall,
    form_call,
    kda_decode_call,
    kda_prefill_call,
    mla_decode_call,
    mla_prefill_call,
)
from workloads.mla import K3_PER_CHIP
from workloads.model import sha256_json

_CALL_OF_REPLAY = re.compile(r"(?P<replay>.+)/call(?P<number>\d{1,6})")
_UNPINNED_DECODE = re.compile(r"compiled-mla/ctx(?P<context>\d{1,9})_B(?P<B>\d{1,6})")
_FORM = re.compile(r"forms/(?P<form>[a-z-]+)")


def recorded_call(
    workload_id: str, workload_sha256: str, parameters: Mapping[str, Any]
) -> KernelCall | None:
    """What a record of this workload timed; None where that cannot be told.

    A stage alone is no call, and how many rows the sequences of a shared table have in common its
    record's parameters do not say: such a record states its own bound, or has none.

    Args:
        workload_id, workload_sha256: of the record.
        parameters: its parameters.
    """
    if "stage" in parameters or parameters.get("table") == "shared":
        return None
    return _call(workload_id, workload_sha256)


@functools.lru_cache(maxsize=4096)
def _call(workload_id: str, sha256: str) -> KernelCall | None:
    if match := _FORM.fullmatch(workload_id):
        return _form(match["form"], sha256)
    if match := _UNPINNED_DECODE.fullmatch(workload_id):
        lengths = (int(match["context"]),) * int(match["B"])
        # As benchmarks/compiled_mla.py names a shape that no family pins.
        if hashlib.sha256(f"{workload_id} {lengths}".encode()).hexdigest() != sha256:
            return None
        return mla_decode_call(lengths, heads=K3_PER_CHIP.heads)
    if match := _CALL_OF_REPLAY.fullmatch(workload_id):
        replay, number = _pinned(match["replay"]), int(match["number"])
        if replay is None or not number < len(replay.calls):
            return None
        if hashlib.sha256(f"{replay.sha256}/{number}".encode()).hexdigest() != sha256:
            return None
        return _of_calls(replay, replay.calls[number : number + 1])
    workload = _pinned(workload_id)
    if workload is None or workload.sha256 != sha256:
        return None
    return _of_calls(workload, workload.calls)


def _pinned(workload_id: str) -> workloads.Workload | None:
    try:
        return workloads.get(workload_id)
    except workloads.WorkloadError:
        return None


def _of_calls(workload: workloads.Workload, calls: tuple[workloads.Call, ...]) -> KernelCall | None:
    geometry = workload.geometry
    if isinstance(geometry, workloads.KdaGeometry):
        sizes: dict[str, Any] = {
            "heads": geometry.heads,
            "k_dim": geometry.key_dim,
            "v_dim": geometry.value_dim,
            "dtype": geometry.dtype,
        }
        if workload.kind == "kda-prefill":
            return kda_prefill_call((call.new_tokens for call in calls), **sizes)
        if workload.kind == "kda-decode" and len(calls) == 1:
            return kda_decode_call(calls[0].batch, **sizes)
        return None
    if len(calls) != 1:
        return None
    [call] = calls
    sizes = {
        "heads": geometry.heads,
        "latent": geometry.kv_lora_rank,
        "rope": geometry.rope_dim,
        "dtype": geometry.dtype,
    }
    if workload.kind == "mla-decode":
        return mla_decode_call(call.kv_lengths, **sizes)
    return mla_prefill_call(
        call.new_tokens,
        call.cached_tokens,
        nope=geometry.nope_dim,
        v_dim=geometry.value_dim,
        **sizes,
    )


def _form(name: str, sha256: str) -> KernelCall | None:
    from k3bench.roofline.reference.ways import PROBLEMS, form_content

    if name not in PROBLEMS or sha256_json(form_content(name)) != sha256:
        return None
    return form_call(PROBLEMS[name].cost)
