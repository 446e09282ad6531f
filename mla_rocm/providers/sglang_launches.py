"""sglang's launches on an AMD GPU that is not there, as its own host code makes them.

Decode (split-KV stages 1 and 2, as they are by default and as tuned for gfx950, or its
work-stealing kernel), extend, and the packed KDA decode. Geometry is sglang's; what a launch must
read and how its work falls to workgroups is counted here from the case.
"""

import importlib
import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from mla_rocm.cases import MlaDecodeCase, MlaPrefillCase
from mla_rocm.cost import decode_attention_flops, flops_per_pair, query_key_pairs
from mla_rocm.errors import MlaArgumentError
from mla_rocm.geometry import ceil_div, split_bounds
from mla_rocm.kda_case import LOWER_BOUND, SPARE_SLOTS, KdaDecodeCase, packed_width
from mla_rocm.launch import ITEMSIZE, Launch
from mla_rocm.launches import pool_pages
from mla_rocm.providers.recording import Recorded, recorded_launches, replaced
from mla_rocm.providers.sglang_kernels import load
from mla_rocm.providers.sglang_splits import scheduled_splits, server_max_splits

DecodeVariant = Literal["default", "tuned", "lean"]

# Read at every call; opts in to the geometry tuned for gfx950.
_TUNE = "SGLANG_MLA_DECODE_TUNE"


@dataclass(frozen=True)
class AmdTarget:
    """The GPU that the host code is to believe in, and what is asked instead of its own choices.

    Attributes:
        arch: ``gfx950`` or another of AMD's.
        compute_units: of the device or partition.
        pool_tokens: that the cache holds; None: the case's own. A server's pool is as large as its
            memory allows, often over 2 GiB a layer, where an offset no longer fits 32 bits and
            loads are other instructions.
        instead: of the first launch's arguments and options, by name: ``BLOCK_N``, ``num_warps``,
            ``num_stages``.
    """

    arch: str
    compute_units: int
    pool_tokens: int | None = None
    instead: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.arch.startswith("gfx"):
            raise MlaArgumentError(
                f"arch is {self.arch}: sglang's launches are described for AMD's gfx targets"
            )


def decode_launches(
    case: MlaDecodeCase, target: AmdTarget, variant: DecodeVariant = "default"
) -> tuple[Launch, ...]:
    """One decode step of sglang.

    Args:
        case: ``num_kv_splits`` is given to every sequence where it is set; else the server's
            scheduler is asked, with as many key heads as query heads, which is what K3's
            configuration states.
        target: the GPU.
        variant: ``default``; ``tuned`` as SGLANG_MLA_DECODE_TUNE=1 makes it, which chooses splits
            for the whole batch where the case does not; ``lean``, the work-stealing kernel that
            the server takes for 8 or more long sequences.

    Raises:
        MlaArgumentError: for what this path of sglang does not take.
    """
    lengths, heads, latent = case.context_lengths, case.heads, case.geometry.latent
    if min(lengths) == 0 or heads == 1:
        raise MlaArgumentError("sglang's MLA decode takes contexts of 1 or more, 2 heads or more")
    decode = load("decode_attention_fwd")
    known = inspect.signature(decode).parameters
    if variant == "lean" and "enable_lean" not in known:
        raise MlaArgumentError("this release of sglang has no lean decode")
    if variant == "lean" and case.num_kv_splits:
        raise MlaArgumentError("num_kv_splits: sglang's lean decode has no split count, give none")
    asked, units = case.num_kv_splits, target.compute_units
    bound = asked or server_max_splits("rocm", units, raised_for_mla="has_mla" in known)
    dtype = getattr(torch, case.dtype)
    pool = target.pool_tokens or pool_pages(lengths, case.page_size, case.table) * case.page_size
    keys = _meta((pool, 1, case.geometry.absorbed_qk_dim), dtype)
    named: dict[str, Any] = {"has_mla": True}
    if variant == "lean":
        # One program a compute unit, each with its partial results for 16 heads.
        named |= {"enable_lean": True, "lean_locks": _meta((units,), torch.int32)}
        named |= {name: _meta((units, 16), torch.float32) for name in ("lean_Mp", "lean_Lp")}
        named["lean_Op"] = _meta((units, 16, latent), torch.float32)
    with _believing(decode, target, tuned_splits=asked, tuned=variant == "tuned"):
        recorded = _recorded(
            decode,
            _meta((case.batch, heads, case.geometry.absorbed_qk_dim), dtype),
            keys,
            keys[..., :latent],
            _meta((case.batch, heads, latent), dtype),
            _meta((case.batch + 1,), torch.int32),
            _meta((case.tokens,), torch.int64),
            _meta((case.batch, heads, bound, latent), torch.float32),
            _meta((case.batch, heads, bound), torch.float32),
            _meta((case.batch,), torch.int32),
            bound,
            case.geometry.scale,
            1.0,
            1.0,
            **{name: value for name, value in named.items() if name in known},
        )
    recorded[0].take_instead(target.instead)
    if variant == "lean":
        [lean] = recorded
        return (_lean_launch(lean, case, target),)
    first, second = recorded
    forced = int(first.named.get("forced_kv_splits") or 0)
    if asked or forced:
        counts: tuple[int, ...] = (forced or bound,) * case.batch
    else:
        counts = scheduled_splits(lengths, heads, bound, units, kv_heads=heads)
    return _split_launches(first, second, case, counts, target)


def extend_launches(case: MlaPrefillCase, target: AmdTarget) -> tuple[Launch]:
    """One prefill of sglang: decompressed without a prefix, absorbed with one, as its server does.

    Raises:
        MlaArgumentError: where there is nothing to launch.
    """
    if case.tokens == 0:
        raise MlaArgumentError("no new tokens: sglang launches no empty grid")
    extend = load("extend_attention_fwd")
    geometry, heads, dtype = case.geometry, case.heads, getattr(torch, case.dtype)
    absorbed = any(case.prefix_lengths)
    qk = geometry.absorbed_qk_dim if absorbed else geometry.decompressed_qk_dim
    v_dim = geometry.absorbed_v_dim if absorbed else geometry.decompressed_v_dim
    key_heads = 1 if absorbed else heads
    k = _meta((case.tokens, key_heads, qk), dtype)
    v = k[..., :v_dim] if absorbed else _meta((case.tokens, heads, v_dim), dtype)
    pages = pool_pages(case.prefix_lengths, case.page_size, case.table)
    pool = target.pool_tokens or pages * case.page_size
    k_pool = _meta((pool, 1, qk), dtype) if absorbed else k[:0]
    v_pool = k_pool[..., :v_dim] if absorbed else v[:0]
    with _believing(extend, target):
        [recorded] = _recorded(
            extend,
            _meta((case.tokens, heads, qk), dtype),
            k,
            v,
            _meta((case.tokens, heads, v_dim), dtype),
            k_pool,
            v_pool,
            _meta((case.batch + 1,), torch.int32),
            _meta((case.batch + 1,), torch.int32),
            _meta((sum(case.prefix_lengths),), torch.int64),
            None,
            True,
            None,
            max(case.new_lengths),
            1.0,
            1.0,
            sm_scale=geometry.scale,
        )
    recorded.take_instead(target.instead)
    if "BLOCK_N" in target.instead:
        recorded.named["BLOCK_N_PREFIX"] = target.instead["BLOCK_N"]
    block_m, block_n = int(recorded.named["BLOCK_M"]), int(recorded.named["BLOCK_N"])
    # The prefix in whole tiles, then the new tokens up to the query tile's last.
    walked = [
        ceil_div(prefix, block_n) + ceil_div(min(new, begin + block_m), block_n)
        for new, prefix in zip(case.new_lengths, case.prefix_lengths, strict=True)
        for begin in range(0, new, block_m)
    ]
    itemsize = ITEMSIZE[case.dtype]
    keys = case.tokens + sum(case.prefix_lengths)
    row = qk if absorbed else heads * (qk + v_dim)
    pairs = sum(map(query_key_pairs, case.new_lengths, case.prefix_lengths))
    return (
        _launch(
            recorded,
            "absorbed" if absorbed else "decompressed",
            target,
            read_bytes=(case.tokens * heads * qk + keys * row) * itemsize
            + 8 * sum(case.prefix_lengths),
            written_bytes=case.tokens * heads * v_dim * itemsize,
            flops=pairs * flops_per_pair(geometry, "absorbed" if absorbed else "decompressed"),
            iterations=max(walked),
            mean_iterations=sum(walked) / len(walked),
            busy_workgroups=len(walked) * heads,
        ),
    )


def kda_launches(case: KdaDecodeCase, target: AmdTarget) -> tuple[Launch]:
    """One packed KDA decode step of sglang.

    Raises:
        MlaArgumentError: where sglang takes a kernel that is not Triton's.
    """
    decode = load("fused_recurrent_kda_packed_decode")
    heads, k, v, dtype = case.heads, case.head_dim_k, case.head_dim_v, getattr(torch, case.dtype)
    mixed = _meta((case.batch, heads * (2 * k + v)), dtype)
    gate, beta = _meta((case.batch, heads * k), dtype), _meta((case.batch, heads), dtype)
    a_log, bias = _meta((heads,), torch.float32), _meta((heads * k,), torch.float32)
    pool = _meta((case.tokens + SPARE_SLOTS, heads, v, k), torch.float32)
    out = _meta((case.batch, 1, heads, v), dtype)
    indices = _meta((case.batch,), torch.int32)
    _refuse_other_compilers(mixed, gate, beta, a_log, bias, pool, out, indices, heads)
    [recorded] = _recorded(
        decode,
        mixed,
        gate,
        beta,
        a_log,
        bias,
        float(k**-0.5),
        pool,
        out,
        indices,
        use_qk_l2norm_in_kernel=True,
        lower_bound=LOWER_BOUND if case.gate == "bounded" else None,
    )
    recorded.take_instead(target.instead)
    state_bytes = case.tokens * heads * k * v * 4
    itemsize = ITEMSIZE[case.dtype]
    return (
        _launch(
            recorded,
            "step",
            target,
            read_bytes=state_bytes
            + case.tokens * packed_width(heads, k, v) * itemsize
            + heads * (k + 1) * 4
            + case.batch * 4,
            written_bytes=state_bytes + case.batch * heads * v * itemsize,
            flops=7 * case.tokens * heads * k * v,
            iterations=1,
        ),
    )


def _split_launches(
    first: Recorded,
    second: Recorded,
    case: MlaDecodeCase,
    counts: tuple[int, ...],
    target: AmdTarget,
) -> tuple[Launch, Launch]:
    geometry, heads, latent = case.geometry, case.heads, case.geometry.latent
    itemsize, block_n = ITEMSIZE[case.dtype], int(first.named["BLOCK_N"])
    bounds = [split_bounds(n, s) for n, s in zip(case.context_lengths, counts, strict=True)]
    tiles = [ceil_div(end - start, block_n) for splits in bounds for start, end in splits]
    written = len(tiles)
    width = geometry.absorbed_qk_dim
    partial_bytes = written * heads * (latent + 1) * 4
    ends = (case.batch + 1) * 4
    stage1 = _launch(
        first,
        "stage1",
        target,
        read_bytes=case.tokens * (geometry.cache_bytes_per_token(itemsize) + 8)
        + written * heads * width * itemsize
        + ends
        + case.batch * 4,
        written_bytes=partial_bytes,
        flops=decode_attention_flops(geometry, case.tokens),
        iterations=max(tiles),
        mean_iterations=sum(tiles) / written,
        iteration_bytes=block_n * width * itemsize,
        busy_workgroups=written * first.grid[1],
    )
    stage2 = _launch(
        second,
        "stage2",
        target,
        read_bytes=partial_bytes + ends + case.batch * 4,
        written_bytes=case.batch * heads * latent * itemsize,
        flops=2 * written * heads * latent,
        iterations=max(map(len, bounds)),
        mean_iterations=written / case.batch,
        iteration_bytes=latent * 4,
    )
    return stage1, stage2


def _lean_launch(recorded: Recorded, case: MlaDecodeCase, target: AmdTarget) -> Launch:
    """All tiles of all sequences, dealt out evenly to one program a compute unit."""
    geometry, heads, latent = case.geometry, case.heads, case.geometry.latent
    itemsize, block_n = ITEMSIZE[case.dtype], int(recorded.named["BLOCK_N"])
    programs = int(recorded.named["total_programs"])
    tiles = sum(ceil_div(length, block_n) for length in case.context_lengths)
    tiles *= int(recorded.named["num_rows"])
    busy = min(programs, tiles)
    # Every program leaves one partial result, which another one of the same sequence reads.
    partial_bytes = busy * heads * (latent + 2) * 4
    queries = busy * heads * geometry.absorbed_qk_dim * itemsize
    return _launch(
        recorded,
        "lean",
        target,
        read_bytes=case.tokens * (geometry.cache_bytes_per_token(itemsize) + 8)
        + queries
        + partial_bytes,
        written_bytes=partial_bytes + case.batch * heads * latent * itemsize,
        flops=decode_attention_flops(geometry, case.tokens),
        iterations=ceil_div(tiles, programs),
        # The program with a sequence's first tile merges those of all that share the sequence.
        merge_iterations=ceil_div(busy, case.batch),
        mean_iterations=tiles / busy,
        iteration_bytes=block_n * geometry.absorbed_qk_dim * itemsize,
        busy_workgroups=busy,
    )


def _launch(recorded: Recorded, name: str, target: AmdTarget, **counted: Any) -> Launch:
    found = recorded.specialized("hip", target.arch, 64)
    return Launch(
        name=name,
        kernel=recorded.kernel,
        signature=found.signature,
        constexprs=found.constexprs,
        attrs=found.attrs,
        options=recorded.options,
        grid=recorded.grid,
        **counted,
    )


def _recorded(function: Callable[..., Any], *positional: Any, **named: Any) -> list[Recorded]:
    with recorded_launches() as launches:
        function(*positional, **named)
    return launches


@contextmanager
def _believing(
    function: Callable[..., Any],
    target: AmdTarget,
    *,
    tuned: bool = False,
    tuned_splits: int | None = None,
) -> Iterator[None]:
    """While it is open, the function's module takes this machine for the target."""
    module = importlib.import_module(function.__module__)
    if not hasattr(module, "_is_hip"):
        raise MlaArgumentError(f"{module.__name__} does not ask for ROCm as known releases do")
    newest = target.arch.startswith("gfx95")
    values: Mapping[str, Any] = {
        "_is_hip": True,
        "_is_cuda": False,
        "_is_gfx95": newest,
        "_is_gfx1250": False,
        "is_gfx95_supported": lambda: newest,
        "get_device_core_count": lambda *_: target.compute_units,
        "_CORE_COUNT": {},
        "_NUM_CU": target.compute_units,
        # Asked for a count, a tuned launch takes it, also past what its own plan would choose.
        **({"_mla_kv_splits": lambda *_: tuned_splits} if tuned_splits else {}),
    }
    before = os.environ.get(_TUNE)
    with ExitStack() as stack:
        stack.enter_context(replaced(module, **values))
        stack.callback(_set_environment, _TUNE, before)
        _set_environment(_TUNE, "1" if tuned else "0")
        yield


def _set_environment(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def _refuse_other_compilers(*arguments: Any) -> None:
    """For batches that newer releases give to a C++ kernel, before Triton is asked."""
    try:
        other = importlib.import_module("sglang.kernels.ops.attention.kda_packed_decode")
    except ImportError:
        return
    if other.covered(*arguments):
        raise MlaArgumentError(
            "sglang gives this batch to a C++ kernel of its own, which is not compiled here"
        )


def _meta(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")
