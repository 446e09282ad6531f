"""What the doctor says: one check a line with its mend, and what this machine can do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Status = Literal["ok", "warning", "missing", "broken"]


@dataclass(frozen=True)
class Check:
    """One thing looked at.

    `status`: "ok"; "warning" (works, but figures suffer); "missing" (not there, and nothing here
    needs it to be); "broken". `needed` says whether this machine's measurements stop without it.
    `mend` is what to do, None where nothing is to be done.
    """

    name: str
    status: Status
    found: str
    mend: str | None = None
    needed: bool = False

    @property
    def fails(self) -> bool:
        """Whether measuring here stops at this."""
        return self.needed and self.status in ("missing", "broken")


@dataclass(frozen=True)
class Capability:
    """One device that can be measured here.

    `implementations` maps a family to the names that run on it; `refused` maps a family to names
    with the reason why each does not.
    """

    device: str
    implementations: dict[str, tuple[str, ...]]
    refused: dict[str, dict[str, str]]


@dataclass(frozen=True)
class Report:
    """All checks, what can be measured and what can be compiled ahead of time."""

    checks: tuple[Check, ...]
    can_measure: tuple[Capability, ...]
    can_compile: tuple[str, ...]

    @property
    def failed(self) -> tuple[Check, ...]:
        """The checks without which this machine cannot measure."""
        return tuple(check for check in self.checks if check.fails)

    def to_json(self) -> dict[str, Any]:
        """A JSON-able form; "ok" is what the exit code says."""
        return {
            "ok": not self.failed,
            "checks": [
                {
                    "name": check.name,
                    "status": check.status,
                    "needed": check.needed,
                    "found": check.found,
                    "mend": check.mend,
                }
                for check in self.checks
            ],
            "can_measure": [
                {
                    "device": capability.device,
                    "families": list(capability.implementations),
                    "implementations": {
                        family: list(names) for family, names in capability.implementations.items()
                    },
                    "refused": capability.refused,
                }
                for capability in self.can_measure
            ],
            "can_compile": list(self.can_compile),
        }
