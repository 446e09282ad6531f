"""What the gate can say of measured points, implementations, and everything together."""

from dataclasses import dataclass
from typing import Literal

from k3bench.gate.noise import Basis

Verdict = Literal["slower", "faster", "unchanged", "suspected", "too few samples"]


@dataclass(frozen=True, slots=True)
class PointVerdict:
    """What is said of one point, and on what grounds.

    ``ratio`` is head's time over base's (Hodges-Lehmann over all samples), ``low`` and ``high`` its
    95% confidence interval, the noise between runs included. ``p`` is the larger of the rank test's
    and the test against the noise between runs; ``q`` adjusts it for all points. ``sees`` is the
    smallest slow-down that this point alone would show, nine times in ten. ``in_turns``: base and
    head alternated in the same processes, and were compared sample by sample.
    """

    verdict: Verdict
    ratio: float | None
    low: float | None
    high: float | None
    p: float | None
    q: float | None
    sees: float | None
    samples: tuple[int, int]
    runs: tuple[int, int]
    basis: Basis | None
    detail: str | None = None
    in_turns: bool = False


@dataclass(frozen=True, slots=True)
class FamilyVerdict:
    """An implementation that was tested as a whole. Ratios of head's time to base's.

    ``against`` and its 95% interval: beside the implementations that took turns with it. ``detail``
    says what was not the same for both sides.
    """

    device: str
    preset: str | None
    module: str
    implementation: str
    verdict: Verdict
    points: int
    against: float
    low: float
    high: float
    own: float
    neighbours: float
    p: float
    detail: str | None


@dataclass(frozen=True, slots=True)
class TogetherVerdict:
    """All points of a device and preset as one. ``cannot_tell``: it might be the machine."""

    device: str
    preset: str | None
    ratio: float
    p: float
    slower: bool
    cannot_tell: bool


@dataclass(frozen=True)
class MeasuredVerdicts:
    """Verdicts in the order of the points, with those over implementations and over everything."""

    points: list[PointVerdict]
    families: list[FamilyVerdict]
    together: list[TogetherVerdict]

    @property
    def fails(self) -> bool:
        """Whether anything got slower."""
        return (
            any(verdict.verdict == "slower" for verdict in self.points)
            or any(verdict.verdict == "slower" for verdict in self.families)
            or any(verdict.slower for verdict in self.together)
        )

    @property
    def cannot_judge(self) -> bool:
        """Whether anything could not be judged."""
        return (
            any(verdict.verdict in ("suspected", "too few samples") for verdict in self.points)
            or any(verdict.cannot_tell for verdict in self.together)
            or any(verdict.verdict == "suspected" for verdict in self.families)
        )
