"""Reports that a command writes from the ledger: nothing in them is typed by hand."""

from k3bench.report.ladder import LadderReport, ReportError, Rung, collect_ladder
from k3bench.report.write import stale_files, write_report

__all__ = ["LadderReport", "ReportError", "Rung", "collect_ladder", "stale_files", "write_report"]
