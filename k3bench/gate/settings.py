"""What a comparison may be told: error budget, relevance, and what to assume of the noise."""

from dataclasses import dataclass

from k3bench.gate.errors import GateError


@dataclass(frozen=True)
class Settings:
    """How to judge. The defaults are what docs/gate.md's figures were simulated with.

    Attributes:
        false_alarms: chance that a comparison without any change fails, over all its points: half
            of it for single points, a quarter for implementations, a quarter for everything at
            once.
        threshold: smallest relative change that matters.
        min_samples: fewer samples on a side are not judged.
        assumed_run_noise: relative standard deviation of a run's median between runs, where one run
            a side, too few other points and no repeated runs leave it unknown.
        assumed_turn_noise: the same for the ratio of two commits measured in turns by one process.
        naming: share of false discoveries among the points named under an implementation that
            moved as a whole.
        accuracy_factor: a largest error that grows by more than this is a change for the worse.
    """

    false_alarms: float = 0.01
    threshold: float = 0.01
    min_samples: int = 10
    assumed_run_noise: float = 0.05
    assumed_turn_noise: float = 0.01
    naming: float = 0.05
    accuracy_factor: float = 2.0

    def __post_init__(self) -> None:
        for name, low, high in (
            ("false_alarms", 0.0, 0.5),
            ("threshold", 0.0, 10.0),
            ("assumed_run_noise", 0.0, 10.0),
            ("assumed_turn_noise", 0.0, 10.0),
            ("naming", 0.0, 0.5),
            ("accuracy_factor", 1.0, 1e6),
        ):
            value = getattr(self, name)
            if not low <= value <= high or (name == "false_alarms" and value == 0.0):
                raise GateError(f"{name} {value}: must lie from {low} to {high}", usage=True)
        if self.min_samples < 1:
            raise GateError(f"min_samples {self.min_samples}: must be at least 1", usage=True)
