"""What one call of a benchmarked kernel cannot do without, and the time that nothing beats.

A call is what a kernel is given and gives back: its inputs and outputs cross memory once each,
whatever is fused inside. Where the same numbers can be had with different work (a form of MLA, a
chunk length of KDA), every way is costed and the fastest bounds the call, so that a kernel's
distance includes the choice of its way.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from k3bench.roofline.cost import Bound, Cost, itemsize
from k3bench.roofline.dense import attention_gemms
from k3bench.roofline.errors import RooflineError
from k3bench.roofline.kda import Kda
from k3bench.roofline.machine import Machine
from k3bench.roofline.mla import Mla
from k3bench.roofline.step import Step

# Fewer tokens a chunk are fewer FLOPs and more passes over the state on the vector units. The
# usual length comes first.
KDA_CHUNKS = (64, 32, 16)
_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


@dataclass(frozen=True)
class CallBound:
    """The time that no schedule of any way beats on a machine.

    Attributes:
        way: the fastest one.
        cost: its work.
        bound: its time, by resource.
        peaks: the rates it is counted with, in words.
    """

    way: str
    cost: Cost
    bound: Bound
    peaks: str


@dataclass(frozen=True)
class KernelCall:
    """One call, or the calls of one replay, by the ways that give its numbers.

    Attributes:
        ways: work by way, the usual one first; every way has every byte that must cross memory.
        dtype: of operands: whose matrix peak holds (bf16, fp16, fp32).
    """

    ways: Mapping[str, Cost]
    dtype: str = "bf16"

    def __post_init__(self) -> None:
        if not self.ways:
            raise RooflineError("a call without ways: give at least one")

    def bound(self, machine: Machine) -> CallBound:
        """The fastest way on a machine, everything overlapped with everything."""
        dtype = machine.dtype_of_peak(self.dtype)
        bounds = {
            way: Bound(
                {
                    resource: seconds / machine.share
                    for resource, seconds in cost.bound(machine.hardware, dtype).by_resource.items()
                }
            )
            for way, cost in self.ways.items()
        }
        way = min(bounds, key=lambda name: bounds[name].seconds)
        return CallBound(way, self.ways[way], bounds[way], machine.peaks(self.dtype))

    @property
    def usual(self) -> Cost:
        """Work of the usual way: what rates count, on every machine alike."""
        return next(iter(self.ways.values()))


def roofline_dtype(name: str) -> str:
    """``bfloat16`` as ``bf16``; RooflineError for what no kernel here takes."""
    if name not in _DTYPES:
        raise RooflineError(f"dtype {name!r}: use one of {', '.join(_DTYPES)}")
    return _DTYPES[name]


def kda_prefill_call(
    calls: Iterable[Sequence[int]],
    *,
    heads: int,
    k_dim: int = 128,
    v_dim: int = 128,
    dtype: str = "bfloat16",
) -> KernelCall:
    """KDA over packed sequences: q, k, v, raw gate and states in; outputs and states out.

    Args:
        calls: tokens of each sequence (zeros allowed), by call; a replay has many calls.
        heads, k_dim, v_dim: on this device.
        dtype: of q, k, v and the raw gate; states are fp32.
    """
    packings = [tuple(lengths) for lengths in calls]
    short = roofline_dtype(dtype)
    forms = {
        f"chunks of {chunk}": Kda(heads, k_dim, v_dim, chunk=chunk, dtype=short)
        for chunk in KDA_CHUNKS
    }
    counts = Counter(length for lengths in packings for length in lengths)
    gate = Cost(read={"gate": len(packings) * heads * (k_dim + 1) * 4})
    ways = {name: _total(_sequences(form, counts), gate) for name, form in forms.items()}
    form = next(iter(forms.values()))
    ways["token by token"] = _total(_recurrent(form, counts), gate)
    return KernelCall(ways, short)


def _sequences(form: Kda, counts: Mapping[int, int]) -> Iterable[Cost]:
    for length, count in counts.items():
        if length:
            yield form.attend(Step.prefill(length, count))
        else:  # nothing to compute: its state passes through
            state = count * form.state_bytes()
            yield Cost(read={"state": state}, written={"state": state})


def _recurrent(form: Kda, counts: Mapping[int, int]) -> Iterable[Cost]:
    for cost, (length, count) in zip(_sequences(form, counts), counts.items(), strict=True):
        steps = length * count * form.heads
        yield replace(cost, gemms=(), vector_flops=steps * form.step_flops)


def kda_decode_call(
    batch: int, *, heads: int, k_dim: int = 128, v_dim: int = 128, dtype: str = "bfloat16"
) -> KernelCall:
    """One token of each sequence: states in and out, q, k, v, gate in, outputs out."""
    form = Kda(heads, k_dim, v_dim, dtype=roofline_dtype(dtype))
    cost = form.attend(Step.decode(1, batch))
    # Beta comes raw among the activations here, not as fp32 after its sigmoid.
    beta, gate = batch * heads * itemsize(form.dtype), heads * (k_dim + 1) * 4
    cost = replace(cost, read={**cost.read, "beta": beta, "gate": gate})
    return KernelCall({"token by token": cost}, form.dtype)


def mla_decode_call(
    context_lengths: Sequence[int],
    *,
    heads: int,
    latent: int = 512,
    rope: int = 64,
    dtype: str = "bfloat16",
    distinct_tokens: int | None = None,
) -> KernelCall:
    """One query row a sequence, absorbed already, over its latents; outputs in latent space.

    Args:
        context_lengths: cached tokens of each sequence, the new one included; zeros allowed.
        heads: query heads on this device.
        latent, rope: widths of a cached row.
        dtype: of cache, queries and outputs.
        distinct_tokens: cached rows that all sequences together visit, where some share them.
    """
    form = Mla(heads, latent, rope, dtype=roofline_dtype(dtype))
    qk_dim, v_dim = form.widths("absorbed")
    rows = len(context_lengths) * heads * itemsize(form.dtype)
    tokens = sum(context_lengths) if distinct_tokens is None else distinct_tokens
    cost = Cost(
        read={"q": rows * qk_dim, "cache": tokens * form.cache_bytes_per_token},
        written={"o": rows * v_dim},
    )
    for context, count in Counter(context_lengths).items():
        if context:
            step = Step.decode(context, count)
            gemms = attention_gemms(heads, qk_dim, v_dim, step, context, context)
            cost += Cost(gemms, scores=count * heads * context)
    return KernelCall({"absorbed": cost}, form.dtype)


def mla_prefill_call(
    new_lengths: Sequence[int],
    prefix_lengths: Sequence[int] = (),
    *,
    heads: int,
    latent: int = 512,
    rope: int = 64,
    nope: int = 128,
    v_dim: int = 128,
    dtype: str = "bfloat16",
) -> KernelCall:
    """New tokens after cached prefixes: queries, latents and up-projections in, outputs out.

    Args:
        new_lengths, prefix_lengths: of each sequence; no prefixes where empty.
        heads: query heads on this device.
        latent, rope, nope, v_dim: widths as Mla has them.
        dtype: of activations, weights and cache.
    """
    form = Mla(heads, latent, rope, nope, v_dim, dtype=roofline_dtype(dtype))
    prefixes = tuple(prefix_lengths) or (0,) * len(new_lengths)
    counts = Counter(
        (new, prefix) for new, prefix in zip(new_lengths, prefixes, strict=True) if new
    )
    ways = {
        "decompressed": _prefill(form, counts, "decompressed", "decompressed"),
        "absorbed": _prefill(form, counts, "absorbed", "absorbed"),
    }
    if any(prefixes):
        ways["decompressed over an absorbed prefix"] = _prefill(
            form, counts, "decompressed", "absorbed"
        )
    return KernelCall(ways, form.dtype)


def _prefill(
    form: Mla, counts: Mapping[tuple[int, int], int], new_form: str, prefix_form: str
) -> Cost:
    total = Cost()
    for (new, prefix), count in counts.items():
        step = Step.chunk(new, prefix, count)
        total += form.attend(step, new_form, prefix_form)  # type: ignore[arg-type]
    # Up-projections are read once a call; the kernel finds its rows in the cache already.
    read = dict(total.read)
    if read:
        up = form.nope + form.v_dim
        read["weights"] = form.heads * form.latent * up * itemsize(form.dtype)
    return replace(
        total,
        read=read,
        written={label: size for label, size in total.written.items() if label != "cache"},
    )


def form_call(cost: Cost, dtype: str = "fp32") -> KernelCall:
    """A form of the ``forms`` benchmark: its own work, without cache rows that it only reads."""
    written = {label: size for label, size in cost.written.items() if label != "cache"}
    return KernelCall({"the form's": replace(cost, written=written)}, dtype)


def _total(costs: Iterable[Cost], start: Cost) -> Cost:
    return sum(costs, start)
