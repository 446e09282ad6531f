"""Where the project lies on this machine: the directory that holds asv.conf.json."""

from pathlib import Path

MARKER = "asv.conf.json"


class ProjectNotFound(ValueError):  # noqa: N818 (reads as the fact it states)
    """No directory with an asv.conf.json; the message says where was looked and how to mend it."""


def project_root(start: Path | None = None) -> Path:
    """The nearest directory at or above ``start`` (default: the current one) with asv.conf.json.

    Outside any project, the source checkout that this package was installed from (editable) is
    taken, so that ``k3bench`` works from every directory. Raises ProjectNotFound.
    """
    here = (start or Path.cwd()).resolve()
    checkout = Path(__file__).resolve().parents[1]
    for directory in (here, *here.parents, checkout):
        if (directory / MARKER).is_file():
            return directory
    raise ProjectNotFound(
        f"no {MARKER} in {here} or above it: run k3bench inside a checkout of the project"
    )
