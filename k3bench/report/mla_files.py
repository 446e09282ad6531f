"""The MLA report as files: docs/mla-mi355x.md and its plots."""

from pathlib import Path

from k3bench.report.mla import MlaReport
from k3bench.report.mla_markdown import document
from k3bench.report.mla_plots import draw_plots

DOCUMENT = Path("docs/mla-mi355x.md")
PLOTS = Path("docs/plots")


def mla_files(report: MlaReport) -> dict[Path, str]:
    """Every file of the report, relative to the project, with its whole content."""
    return {
        DOCUMENT: document(report),
        **{PLOTS / name: text for name, text in draw_plots(report).items()},
    }
