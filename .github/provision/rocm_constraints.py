"""Writes what pip may install beside a ROCm image's own torch and Triton.

``python rocm_constraints.py CONSTRAINTS PYPROJECT DIRECTORY`` writes into DIRECTORY
``constraints-rocm.txt`` (CONSTRAINTS without torch and triton) and
``requirements-rocm.txt`` (PYPROJECT's dependencies without torch). Standard library alone.
"""

import re
import sys
import tomllib
from pathlib import Path

# The image's own: replacing one would measure something else than what serves.
PROVIDED = ("torch", "triton")


def name_of(requirement: str) -> str:
    """The distribution's normalised name."""
    return re.split(r"[\s\[<>=!~;]", requirement.strip(), maxsplit=1)[0].lower().replace("_", "-")


def without_provided(requirements: list[str]) -> list[str]:
    """The requirements that do not name what the image provides."""
    return [line for line in requirements if name_of(line) not in PROVIDED]


def main(constraints: Path, pyproject: Path, directory: Path) -> None:
    """Writes both files."""
    lines = [line for line in constraints.read_text().splitlines() if line.strip()]
    kept = without_provided(lines)
    (directory / "constraints-rocm.txt").write_text("\n".join(kept) + "\n")
    wanted = tomllib.loads(pyproject.read_text())["project"]["dependencies"]
    (directory / "requirements-rocm.txt").write_text("\n".join(without_provided(wanted)) + "\n")


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:4]))
