"""Runs `k3bench attribute` in this process: exit code, stdout and stderr, as a shell would see."""

import json
from dataclasses import dataclass
from typing import Any

from click.testing import CliRunner

from k3bench.cli.attribute import attribute


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def checks(self) -> dict[str, Any]:
        return {check["name"]: check for check in self.json["checks"]}


def run(*arguments: object) -> Ran:
    """`k3bench attribute ARGUMENTS`; raises what the command raises, but for its own errors."""
    result = CliRunner().invoke(attribute, [str(a) for a in arguments], catch_exceptions=False)
    return Ran(result.exit_code, result.stdout, result.stderr)
