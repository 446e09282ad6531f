"""What a form must compute and move: GEMMs, FLOPs and bytes, and the time no schedule beats."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from k3bench.roofline.errors import RooflineError
from k3bench.roofline.hardware import Hardware

# What the vector units do for one visible score: running maximum, subtraction, exponential, sum.
# An exponential counts as one operation, which no device beats.
SOFTMAX_OPS = 4

# Weights and caches are read where they lie and must come from memory whatever is fused; the rest
# is what one kernel hands to the next, which a fused layer keeps on chip.
RESIDENT = frozenset({"weights", "cache", "state", "index_cache", "conv_state", "hidden"})

BYTES_OF = MappingProxyType({"bf16": 2, "fp16": 2, "fp32": 4, "fp8": 1, "int8": 1})


def itemsize(dtype: str) -> int:
    """Bytes of one element."""
    if dtype not in BYTES_OF:
        raise RooflineError(f"dtype {dtype!r}: use one of {', '.join(BYTES_OF)}")
    return BYTES_OF[dtype]


def require_counts(where: object, **counts: int) -> None:
    """Every count is an integer of 1 or more, else a RooflineError that names it."""
    for name, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise RooflineError(
                f"{type(where).__name__}.{name} is {value!r}: give an integer of 1 or more"
            )


def ceil_div(numerator: int, denominator: int) -> int:
    """The smallest integer that is not below the quotient."""
    return -(-numerator // denominator)


@dataclass(frozen=True)
class Gemm:
    """``count`` products [M, K] x [K, N] of one kind.

    Attributes:
        name: what they make.
        M, N, K: sizes of one; for an attention product over a cache, N or K is its length.
        count: of equal shape.
        needed: multiply-adds that the mathematics asks for over all of them, where masking leaves
            some of the product out; None for all.
    """

    name: str
    M: int
    N: int
    K: int
    count: int = 1
    needed: int | None = None

    @property
    def dense_flops(self) -> int:
        """FLOPs of the whole products."""
        return 2 * self.M * self.N * self.K * self.count

    @property
    def flops(self) -> int:
        """FLOPs that the mathematics asks for, a multiply-add as 2."""
        return self.dense_flops if self.needed is None else 2 * self.needed

    @property
    def weight_elements(self) -> int:
        """Elements of the K x N operands, read once each."""
        return self.N * self.K * self.count


@dataclass(frozen=True)
class Bound:
    """The time that no schedule beats, and which resource says so.

    Attributes:
        seconds: the largest of ``by_resource``.
        by_resource: seconds of ``matrix``, ``vector``, ``hbm`` and ``link`` at peak, each as if
            the others were free.
    """

    by_resource: Mapping[str, float]

    @property
    def seconds(self) -> float:
        return max(self.by_resource.values())

    @property
    def limited_by(self) -> str:
        return max(self.by_resource, key=lambda name: self.by_resource[name])


@dataclass(frozen=True)
class Cost:
    """One call's work.

    Attributes:
        gemms: everything that a matrix unit can do.
        vector_flops: multiply-adds, as 2, that are elementwise or rank-1 (recurrences, gates).
        scores: softmax scores; each takes SOFTMAX_OPS vector operations, which are no FLOPs here.
        read, written: bytes from and to memory by what they are; every byte once.
        link_bytes: that one device sends to a neighbour.
    """

    gemms: tuple[Gemm, ...] = ()
    vector_flops: int = 0
    scores: int = 0
    read: Mapping[str, int] = field(default_factory=dict)
    written: Mapping[str, int] = field(default_factory=dict)
    link_bytes: int = 0

    @property
    def matrix_flops(self) -> int:
        return sum(gemm.flops for gemm in self.gemms)

    @property
    def flops(self) -> int:
        """Multiply-adds as 2, on whichever unit; no exponentials, no padding."""
        return self.matrix_flops + self.vector_flops

    @property
    def read_bytes(self) -> int:
        return sum(self.read.values())

    @property
    def written_bytes(self) -> int:
        return sum(self.written.values())

    @property
    def hbm_bytes(self) -> int:
        return self.read_bytes + self.written_bytes

    @property
    def intensity(self) -> float:
        """FLOPs a byte of all traffic."""
        return self.flops / self.hbm_bytes

    def intensity_over(self, *labels: str) -> float:
        """FLOPs a byte read of the named traffic alone, e.g. ``cache``."""
        moved = sum(self.read.get(label, 0) for label in labels)
        if not moved:
            raise RooflineError(f"nothing is read of {', '.join(labels)}: there is no intensity")
        return self.flops / moved

    def resident(self) -> "Cost":
        """This work with what passes between its kernels kept on chip: a whole layer's bound."""
        return replace(
            self,
            read={label: size for label, size in self.read.items() if label in RESIDENT},
            written={label: size for label, size in self.written.items() if label in RESIDENT},
        )

    def bound(self, hardware: Hardware, dtype: str = "bf16") -> Bound:
        """At the device's peaks, with everything overlapped with everything."""
        return Bound(
            {
                "matrix": self.matrix_flops / hardware.matrix_flops_per_s(dtype),
                "vector": (self.vector_flops + SOFTMAX_OPS * self.scores) / hardware.vector.value,
                "hbm": self.hbm_bytes / hardware.hbm.value,
                "link": self.link_bytes / hardware.link.value,
            }
        )

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            self.gemms + other.gemms,
            self.vector_flops + other.vector_flops,
            self.scores + other.scores,
            _merged(self.read, other.read),
            _merged(self.written, other.written),
            self.link_bytes + other.link_bytes,
        )

    def times(self, count: int) -> "Cost":
        """``count`` such calls, as in as many layers."""
        return Cost(
            tuple(
                replace(
                    gemm,
                    count=gemm.count * count,
                    needed=None if gemm.needed is None else gemm.needed * count,
                )
                for gemm in self.gemms
                if count
            ),
            self.vector_flops * count,
            self.scores * count,
            {label: size * count for label, size in self.read.items()},
            {label: size * count for label, size in self.written.items()},
            self.link_bytes * count,
        )


def _merged(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {
        label: one.get(label, 0) + other.get(label, 0) for label in dict.fromkeys((*one, *other))
    }


def linear(name: str, tokens: int, out: int, into: int, weight_bytes_each: float = 2.0) -> Cost:
    """A weight product of ``tokens`` rows: its weights are read once, however many rows."""
    gemm = Gemm(name, tokens, out, into)
    return Cost((gemm,), read={"weights": round(gemm.weight_elements * weight_bytes_each)})
