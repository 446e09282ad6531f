"""Reports that a command writes from the ledger: nothing in them is typed by hand."""

from pathlib import Path

from sqlalchemy.orm import Session

from k3bench.report.errors import ReportError
from k3bench.report.ladder import LadderReport, Rung, collect_ladder
from k3bench.report.ladder_files import ladder_files
from k3bench.report.mla import MlaReport, collect_mla
from k3bench.report.mla_files import mla_files
from k3bench.report.write import stale_files, write_files

__all__ = [
    "LadderReport",
    "MlaReport",
    "ReportError",
    "Rung",
    "collect_ladder",
    "collect_mla",
    "ladder_files",
    "mla_files",
    "report_files",
    "stale_files",
    "write_files",
]


def report_files(session: Session, project_root: Path) -> dict[Path, str]:
    """Every file of every report, relative to the project, as the ledger has it now.

    Raises:
        ReportError: the ledger or the README lacks what a report needs.
    """
    return {
        **ladder_files(collect_ladder(session), project_root),
        **mla_files(collect_mla(session)),
    }
