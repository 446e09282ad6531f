"""What each of our Triton operations launches, described without a GPU, tensors or a compiler.

The same descriptions bind the kernels to tensors and feed an ahead-of-time compiler, so what is
judged from a code object is what runs.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mla_rocm.cases import MlaDecodeCase, MlaPrefillCase, Table, shared_pages
from mla_rocm.cost import decode_attention_flops, decode_cache_bytes, flops_per_pair
from mla_rocm.decode_plan import (
    STAGE1_STAGES,
    STAGE1_WARPS,
    STAGE2_WARPS,
    DecodePlan,
    plan_decode,
    power_of_two,
)
from mla_rocm.geometry import MI355X_COMPUTE_UNITS, MlaGeometry, ceil_div, split_bounds
from mla_rocm.kda_case import SPARE_SLOTS, KdaDecodeCase, packed_width
from mla_rocm.launch import ITEMSIZE, TRITON_TYPES, Launch
from mla_rocm.paging import SPARE_PAGES
from mla_rocm.prefill_plan import TILES, Pass, PrefillForm, Span, plan_prefill

if TYPE_CHECKING:
    from triton.runtime.jit import JITFunction

# Value columns and warps of a KDA decode workgroup: 4 workgroups of 64 threads a head of 128, each
# thread holding 64 state elements, all loaded at once.
KDA_BLOCK_V = 32
KDA_WARPS = 1

# Triton's smallest matrix operand: head counts and widths below are padded to it.
LEAST_DOT = 16


def decode_launches(
    case: MlaDecodeCase,
    target_cus: int = MI355X_COMPUTE_UNITS,
    *,
    batch_invariant: bool = False,
) -> tuple[Launch, Launch]:
    """Stage 1 (split-KV over the paged cache) and stage 2 (merge) of one decode step.

    Args:
        case: context lengths, heads, page size, splits (None: chosen for ``target_cus``), dtype.
        target_cus: compute units of the device or partition.
        batch_invariant: choose the split count without looking at the batch.
    """
    plan = plan_decode(
        case.context_lengths,
        case.geometry,
        num_kv_splits=case.num_kv_splits,
        compute_units=target_cus,
        batch_invariant=batch_invariant,
    )
    return decode_plan_launches(
        plan,
        case.context_lengths,
        case.geometry,
        case.page_size,
        case.dtype,
        pool_pages=pool_pages(case.context_lengths, case.page_size, case.table),
    )


def decode_plan_launches(
    plan: DecodePlan,
    context_lengths: tuple[int, ...],
    geometry: MlaGeometry,
    page_size: int,
    dtype: str,
    *,
    pool_pages: int | None = None,
) -> tuple[Launch, Launch]:
    """The two launches of a given plan; arguments as in ``decode_launches``.

    ``pool_pages`` are the cache's, of all sequences; None makes no claim of a small one.
    """
    from mla_rocm.kernels.decode import decode_stage1, decode_stage2

    batch, heads, latent = len(context_lengths), geometry.heads, geometry.latent
    element, itemsize = TRITON_TYPES[dtype], ITEMSIZE[dtype]
    head_blocks = ceil_div(heads, plan.block_h)
    bounds = [split_bounds(length, plan.num_kv_splits) for length in context_lengths]
    tokens = sum(context_lengths)
    spans = [span for splits in bounds for span in splits]
    written = len(spans)
    # A table entry for each page that a split touches; a split may begin inside a page.
    pages = sum((end - 1) // page_size - start // page_size + 1 for start, end in spans)
    width = geometry.absorbed_qk_dim
    partial_bytes = written * heads * (latent + 1) * 4
    lengths_bytes = batch * 4
    cells = batch * heads * plan.num_kv_splits
    storage = {
        "q": batch * heads * width * itemsize,
        "block_table": batch * max(1, *(ceil_div(n, page_size) for n in context_lengths)) * 4,
        "seq_lens": lengths_bytes,
        "partial_o": cells * latent * 4,
        "partial_lse": cells * 4,
        "o": batch * heads * latent * itemsize,
        "lse": batch * heads * 4,
    }
    if pool_pages is not None:
        storage["kv_cache"] = pool_pages * page_size * width * itemsize
    tiles = [ceil_div(end - start, plan.block_n) for start, end in spans]

    stage1 = Launch(
        name="stage1",
        kernel=decode_stage1,
        signature=_signature(
            decode_stage1,
            q=f"*{element}",
            kv_cache=f"*{element}",
            block_table="*i32",
            seq_lens="*i32",
            partial_o="*fp32",
            partial_lse="*fp32",
            scale_log2="fp32",
            num_kv_splits="i32",
            table_stride="i32",
        ),
        constexprs={
            "HEADS": heads,
            "LATENT": latent,
            "ROPE": geometry.rope,
            "LATENT_PAD": max(LEAST_DOT, power_of_two(latent)),
            "ROPE_PAD": max(LEAST_DOT, power_of_two(geometry.rope)),
            "PAGE": page_size,
            "BLOCK_H": plan.block_h,
            "BLOCK_N": plan.block_n,
        },
        options={"num_warps": STAGE1_WARPS, "num_stages": STAGE1_STAGES},
        # No workgroups for splits that no sequence writes (short contexts, many splits asked for).
        grid=(max(1, *map(len, bounds)), head_blocks, batch),
        # Head blocks read the same keys; all but the first find them in a cache.
        read_bytes=decode_cache_bytes(geometry, tokens, itemsize)
        + written * heads * width * itemsize
        + pages * 4
        + lengths_bytes,
        written_bytes=partial_bytes,
        flops=decode_attention_flops(geometry, tokens),
        iterations=max(tiles, default=0),
        storage_bytes=storage,
        mean_iterations=sum(tiles) / max(1, written),
        iteration_bytes=plan.block_n * width * itemsize,
        busy_workgroups=max(1, written) * head_blocks,
    )
    stage2 = Launch(
        name="stage2",
        kernel=decode_stage2,
        signature=_signature(
            decode_stage2,
            partial_o="*fp32",
            partial_lse="*fp32",
            seq_lens="*i32",
            o=f"*{element}",
            lse="*fp32",
            num_kv_splits="i32",
        ),
        constexprs={
            "HEADS": heads,
            "LATENT": latent,
            "BLOCK_N": plan.block_n,
            "BLOCK_S": plan.block_s,
            "BLOCK_D": plan.block_d,
        },
        options={"num_warps": STAGE2_WARPS, "num_stages": 1},
        grid=(ceil_div(latent, plan.block_d), heads, batch),
        read_bytes=partial_bytes + lengths_bytes,
        written_bytes=batch * heads * (latent * itemsize + 4),
        flops=2 * written * heads * latent,
        iterations=max((ceil_div(len(splits), plan.block_s) for splits in bounds), default=0),
        storage_bytes=storage,
        iteration_bytes=plan.block_s * (plan.block_d + 1) * 4,
    )
    return stage1, stage2


def pool_pages(lengths: Sequence[int], page_size: int, table: Table) -> int:
    """Pages of the pool that ``lay_out_pages`` makes for these contexts."""
    pages = sum(ceil_div(length, page_size) for length in lengths)
    common = shared_pages(lengths, page_size) if table == "shared" else 0
    in_use = sum(length > 0 for length in lengths)
    return pages - common * max(0, in_use - 1) + SPARE_PAGES


def prefill_launches(case: MlaPrefillCase, form: PrefillForm) -> tuple[Launch, ...]:
    """One attention launch per pass of the form, in order; the up-projections are not among them.

    Args:
        case: new and prefix lengths, heads, dtype.
        form: ``decompressed``, ``absorbed``, ``chunked_decompressed`` or ``chunked_absorbed``.
    """
    return tuple(
        prefill_launch(step, case.geometry, case.dtype)
        for step in plan_prefill(case.new_lengths, case.prefix_lengths, form)
    )


def prefill_launch(step: Pass, geometry: MlaGeometry, dtype: str) -> Launch:
    """The attention launch of one pass: grid (query tiles, heads, sequences that take part)."""
    from mla_rocm.kernels.prefill import prefill_attention

    element, itemsize = TRITON_TYPES[dtype], ITEMSIZE[dtype]
    tiles, heads, rope = TILES[step.form], geometry.heads, geometry.rope
    absorbed = step.form == "absorbed"
    main = geometry.latent if absorbed else geometry.nope
    v_dim = geometry.absorbed_v_dim if absorbed else geometry.decompressed_v_dim
    queries = sum(span.queries for span in step.spans)
    keys = sum(span.keys for span in step.spans)
    # Latents are keys and values at once and shared by all heads, as the rotary key always is.
    key_elements = main + rope if absorbed else heads * (main + v_dim) + rope
    q_elements = queries * heads * (main + rope)
    rows_bytes = keys * (geometry.latent + rope) * itemsize
    tiles_of = [_tiles_seen(span, tiles.block_m, tiles.block_n, step.causal) for span in step.spans]
    walked = [count for counts in tiles_of for count in counts]
    longest = max(span.queries for span in step.spans)
    return Launch(
        name=f"{step.form}-{'causal' if step.causal else 'prefix'}",
        kernel=prefill_attention,
        signature=_signature(
            prefill_attention,
            q=f"*{element}",
            kv=f"*{element}",
            rows=f"*{element}",
            o=f"*{element}",
            lse="*fp32",
            spans="*i32",
            scale_log2="fp32",
        ),
        constexprs={
            "HEADS": heads,
            "LATENT": geometry.latent,
            "MAIN": main,
            "ROPE": rope,
            "V_DIM": v_dim,
            "MAIN_PAD": max(LEAST_DOT, power_of_two(main)),
            "ROPE_PAD": max(LEAST_DOT, power_of_two(rope)),
            "V_PAD": max(LEAST_DOT, power_of_two(v_dim)),
            "BLOCK_M": tiles.block_m,
            "BLOCK_N": tiles.block_n,
            "SHARED_KV": absorbed,
            "CAUSAL": step.causal,
        },
        options={
            "num_warps": tiles.num_warps,
            "num_stages": tiles.num_stages,
            "matrix_instr_nonkdim": tiles.mfma_rows,
        },
        grid=(
            ceil_div(longest, tiles.block_m),
            heads,
            len(step.spans),
        ),
        read_bytes=(q_elements + keys * key_elements) * itemsize + len(step.spans) * 16,
        written_bytes=queries * heads * (v_dim * itemsize + 4),
        flops=step.pairs * flops_per_pair(geometry, step.form),
        iterations=max(walked),
        storage_bytes={
            # Queries of every span lie within one tensor of all new tokens.
            "q": q_elements * itemsize,
            "kv": rows_bytes if absorbed else keys * heads * (main + v_dim) * itemsize,
            "rows": rows_bytes,
            "o": queries * heads * v_dim * itemsize,
            "lse": queries * heads * 4,
            "spans": len(step.spans) * 16,
        },
        mean_iterations=sum(walked) / len(walked),
        iteration_bytes=tiles.block_n * (main + rope + (0 if absorbed else v_dim)) * itemsize,
        busy_workgroups=len(walked) * heads,
    )


def _tiles_seen(span: Span, block_m: int, block_n: int, causal: bool) -> list[int]:
    """Key tiles that each query tile of a span walks; under a causal mask, up to its last query."""
    seen = []
    for begin in range(0, span.queries, block_m):
        hidden = max(0, span.queries - begin - block_m) if causal else 0
        seen.append(ceil_div(span.keys - hidden, block_n))
    return seen


def kda_decode_launches(case: KdaDecodeCase) -> tuple[Launch]:
    """The one launch of a KDA decode step: grid (value blocks, heads, batch)."""
    return (
        kda_launch(
            case.batch,
            case.tokens,
            case.heads,
            case.head_dim_k,
            case.head_dim_v,
            bounded=case.gate == "bounded",
            dtype=case.dtype,
        ),
    )


def kda_launch(
    batch: int, tokens: int, heads: int, k: int, v: int, *, bounded: bool, dtype: str
) -> Launch:
    """As ``kda_decode_launches``; ``tokens`` is the batch without its padding."""
    from mla_rocm.kernels.kda_decode import kda_decode_step

    element, itemsize = TRITON_TYPES[dtype], ITEMSIZE[dtype]
    state_bytes = tokens * heads * k * v * 4
    block_v = min(KDA_BLOCK_V, power_of_two(v))
    pool_bytes = (tokens + SPARE_SLOTS) * heads * k * v * 4
    return Launch(
        name="step",
        kernel=kda_decode_step,
        signature=_signature(
            kda_decode_step,
            packed=f"*{element}",
            a_log="*fp32",
            dt_bias="*fp32",
            state_indices="*i32",
            state_in="*fp32",
            state_out="*fp32",
            o=f"*{element}",
            scale="fp32",
            lower_bound="fp32",
            row_stride="i32",
        ),
        constexprs={
            "HEADS": heads,
            "K": k,
            "V": v,
            "K_PAD": power_of_two(k),
            "BLOCK_V": block_v,
            "BOUNDED": bounded,
        },
        options={"num_warps": KDA_WARPS, "num_stages": 1},
        grid=(ceil_div(v, block_v), heads, batch),
        read_bytes=state_bytes
        + tokens * packed_width(heads, k, v) * itemsize
        + heads * (k + 1) * 4
        + batch * 4,
        written_bytes=state_bytes + batch * heads * v * itemsize,
        # Decay 1, prediction 2, update 2 and output 2 for every state element.
        flops=7 * tokens * heads * k * v,
        iterations=1,
        storage_bytes={
            "packed": batch * packed_width(heads, k, v) * itemsize,
            "a_log": heads * 4,
            "dt_bias": heads * k * 4,
            "state_indices": batch * 4,
            "state_in": pool_bytes,
            "state_out": pool_bytes,
            "o": batch * heads * v * itemsize,
        },
    )


def _signature(kernel: "JITFunction[Any]", **types: str) -> dict[str, str]:
    """Types in the kernel's own order; what has no type given is a constexpr."""
    return {name: types.get(name, "constexpr") for name in kernel.arg_names}
