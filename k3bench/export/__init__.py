"""asv's result files written back from the ledger, so that asv works on a clone that never ran it.

    with open_ledger() as ledger:
        report = export_asv(ledger, project_root(), machines={}, force=False)

``asv compare``, ``asv publish`` and the dashboard read the files as if ``asv run`` had left them.
"""

from k3bench.export.asv_files import ExportReport, export_asv
from k3bench.export.errors import ExportError

__all__ = ["ExportError", "ExportReport", "export_asv"]
