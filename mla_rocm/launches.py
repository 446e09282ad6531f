"""What each of our Triton operations launches, described without a GPU, tensors or a compiler.

The same descriptions bind the kernels to tensors and feed an ahead-of-time compiler, so what is
judged from a code object is what runs.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mla_rocm.cases import MlaDecodeCase, MlaPrefillCase
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
from mla_rocm.kda_case import KdaDecodeCase, packed_width
from mla_rocm.prefill_plan import TILES, Pass, PrefillForm, plan_prefill

if TYPE_CHECKING:
    from triton.compiler import ASTSource
    from triton.runtime.jit import JITFunction

# Triton's names of element types.
TRITON_TYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
ITEMSIZE = {"float32": 4, "float16": 2, "bfloat16": 2}

# Value columns and warps of a KDA decode workgroup: 4 workgroups of 64 threads a head of 128, each
# thread holding 64 state elements, all loaded at once.
KDA_BLOCK_V = 32
KDA_WARPS = 1

# Triton's smallest matrix operand: head counts and widths below are padded to it.
LEAST_DOT = 16

# Options that only AMD's backend takes.
HIP_OPTIONS = ("matrix_instr_nonkdim", "waves_per_eu")

Grid = tuple[int, int, int]


@dataclass(frozen=True)
class Launch:
    """One kernel launch.

    Attributes:
        name: ``stage1``, ``stage2``, ... within its operation.
        kernel: the Triton function.
        signature: type of every argument by name, in order: ``*bf16``, ``i32``, ``constexpr``.
        constexprs: values of the ``constexpr`` arguments.
        options: for AMD targets; those in ``HIP_OPTIONS`` mean nothing to others.
        grid: workgroups along x, y and z.
        read_bytes: what the launch must read from memory: each tensor element that it uses once,
            what it actually visits for the case (never the allocation).
        written_bytes: what it writes.
        flops: multiply-adds of the mathematics as 2, without padding; exponentials not counted.
        iterations: main-loop iterations of the longest workgroup.
        attrs: argument properties for the compiler, as Triton derives them at run time: all
            pointers divisible by 16.
    """

    name: str
    kernel: "JITFunction[Any]"
    signature: dict[str, str]
    constexprs: dict[str, Any]
    options: dict[str, int]
    grid: Grid
    read_bytes: int
    written_bytes: int
    flops: int
    iterations: int
    attrs: dict[tuple[int, ...], list[list[Any]]] = field(init=False)

    def __post_init__(self) -> None:
        aligned = {
            (index,): [["tt.divisibility", 16]]
            for index, kind in enumerate(self.signature.values())
            if kind.startswith("*")
        }
        object.__setattr__(self, "attrs", aligned)

    @property
    def workgroups(self) -> int:
        """Workgroups of the whole grid."""
        x, y, z = self.grid
        return x * y * z

    def source(self) -> "ASTSource":
        """What ``triton.compile`` takes; ``options`` go beside it."""
        from triton.compiler import ASTSource

        return ASTSource(
            self.kernel, dict(self.signature), dict(self.constexprs), attrs=dict(self.attrs)
        )


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
        plan, case.context_lengths, case.geometry, case.page_size, case.dtype
    )


def decode_plan_launches(
    plan: DecodePlan,
    context_lengths: tuple[int, ...],
    geometry: MlaGeometry,
    page_size: int,
    dtype: str,
) -> tuple[Launch, Launch]:
    """The two launches of a given plan; arguments as in ``decode_launches``."""
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
        iterations=max((ceil_div(end - start, plan.block_n) for start, end in spans), default=0),
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
    )
    return stage1, stage2


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
            ceil_div(max(span.queries for span in step.spans), tiles.block_m),
            heads,
            len(step.spans),
        ),
        read_bytes=(q_elements + keys * key_elements) * itemsize + len(step.spans) * 16,
        written_bytes=queries * heads * (v_dim * itemsize + 4),
        flops=step.pairs * flops_per_pair(geometry, step.form),
        iterations=max(ceil_div(span.keys, tiles.block_n) for span in step.spans),
    )


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
    )


def _signature(kernel: "JITFunction[Any]", **types: str) -> dict[str, str]:
    """Types in the kernel's own order; what has no type given is a constexpr."""
    return {name: types.get(name, "constexpr") for name in kernel.arg_names}
