"""What a comparison found: one finding a point and metric, and the exit code that follows."""

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from k3bench.gate.comparability import Unlike
from k3bench.gate.select import Point
from k3bench.gate.settings import Settings
from k3bench.gate.verdicts import FamilyVerdict, PointVerdict, TogetherVerdict

# What a finding does to the exit code.
Weight = Literal["fails", "cannot judge", "informs"]

PASSED, FAILED, COULD_NOT_JUDGE = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Finding:
    """One point's outcome under one metric.

    ``base`` and ``head`` are the metric's values (medians in seconds for ``time_s``);
    ``statistics`` is there for measured times that were compared; ``gain`` is the throughput's
    ratio, head's over base's.
    """

    point: Point
    metric: str
    outcome: str
    weight: Weight
    base: Any = None
    head: Any = None
    gain: float | None = None
    statistics: PointVerdict | None = None
    detail: str | None = None

    @property
    def explains(self) -> bool:
        """Whether it says why an exact figure moved, and decides nothing: slots, shares, hashes."""
        return self.outcome == "changed" and self.weight == "informs"

    @property
    def size(self) -> float:
        """How far it moved: the size of the logarithm of head over base.

        Infinite where there is no ratio: a kernel that is missing or wrong, a count up from none.
        """
        ratio = None if self.statistics is None else self.statistics.ratio
        if ratio is None and _is_number(self.base) and _is_number(self.head):
            if self.base == self.head:
                return 0.0
            ratio = self.head / self.base if self.base else None
        return abs(math.log(ratio)) if ratio is not None and ratio > 0 else math.inf

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "kind": self.point.kind,
            "device": self.point.device,
            "preset": self.point.preset,
            "benchmark": self.point.benchmark,
            "parameters": json.loads(self.point.parameters),
            "implementation": self.point.implementation,
            "further_clock": self.point.further_clock,
            "metric": self.metric,
            "outcome": self.outcome,
            "weight": self.weight,
            "explains": self.explains,
            "base": self.base,
            "head": self.head,
            "throughput_ratio": self.gain,
            "statistics": None if self.statistics is None else asdict(self.statistics),
            "detail": self.detail,
        }


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True)
class Report:
    """A whole comparison. ``base`` and ``head`` are the sides as they were asked for, resolved."""

    base: str
    head: str
    settings: Settings
    findings: Sequence[Finding]
    families: Sequence[FamilyVerdict] = ()
    together: Sequence[TogetherVerdict] = ()
    differences: Sequence[Unlike] = ()
    notes: Sequence[str] = ()
    compared: int = 0
    unjudged_strata: Sequence[str] = field(default_factory=tuple)

    @property
    def failures(self) -> list[Finding]:
        """Findings that fail the comparison."""
        return [finding for finding in self.findings if finding.weight == "fails"]

    @property
    def exit_code(self) -> int:
        """0: nothing got worse. 1: something did. 2: something could not be judged."""
        if (
            self.failures
            or any(family.verdict == "slower" for family in self.families)
            or any(whole.slower for whole in self.together)
        ):
            return FAILED
        if (
            not self.compared
            or self.unjudged_strata
            or any(finding.weight == "cannot judge" for finding in self.findings)
            or any(whole.cannot_tell for whole in self.together)
            or any(family.verdict == "suspected" for family in self.families)
        ):
            return COULD_NOT_JUDGE
        return PASSED

    def explanations(self) -> dict[Point, list[Finding]]:
        """What explains the exact figures of a point, the largest change first, hashes last.

        Points that fail come first, the worst of them leading.
        """
        found: dict[Point, list[Finding]] = {
            finding.point: [] for finding in self.findings if finding.weight != "informs"
        }
        for finding in self.findings:
            if finding.explains:
                found.setdefault(finding.point, []).append(finding)
        for of_point in found.values():
            of_point.sort(
                key=lambda one: (not (_is_number(one.base) and _is_number(one.head)), -one.size)
            )
        return {point: of_point for point, of_point in found.items() if of_point}

    def counts(self) -> dict[str, int]:
        """How many findings of each outcome, the most first."""
        return dict(Counter(finding.outcome for finding in self.findings).most_common())

    def would_see(self, change: float) -> tuple[int, int]:
        """Of the judged measured points, how many would show this slow-down alone; of how many."""
        seen = self._visible()
        return sum(value <= change for value in seen), len(seen)

    def half_would_see(self) -> float | None:
        """The slow-down that half of the judged measured points would show alone; None if none.

        None as well where noise bounds nothing for half of them.
        """
        seen = sorted(self._visible())
        middle = seen[(len(seen) - 1) // 2] if seen else math.inf
        return middle if math.isfinite(middle) else None

    def _visible(self) -> list[float]:
        """Of every judged measured point, the smallest slow-down it would show; maybe infinite."""
        return [
            math.inf if one.statistics.sees is None else one.statistics.sees
            for one in self.findings
            if one.statistics is not None and one.statistics.basis is not None
        ]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types; everything that the tables show, and more."""
        visible, judged = self.would_see(0.03)
        return {
            "base": self.base,
            "head": self.head,
            "exit_code": self.exit_code,
            "verdict": ("passed", "failed", "could not judge")[self.exit_code],
            "settings": asdict(self.settings),
            "compared": self.compared,
            "counts": self.counts(),
            "would_show_3pct_alone": {"points": visible, "of": judged},
            "half_would_show_alone": self.half_would_see(),
            "findings": [finding.to_json() for finding in self.findings],
            "implementations": [asdict(family) for family in self.families],
            "together": [asdict(whole) for whole in self.together],
            "differences": [asdict(difference) for difference in self.differences],
            "notes": [*self.notes, *self.unjudged_strata],
        }
