"""The ladder's report as files: docs/kda-ladder.md, its plots, and the README's headline table."""

from pathlib import Path

from k3bench.report.errors import ReportError
from k3bench.report.ladder import LadderReport
from k3bench.report.ladder_markdown import README_BEGIN, README_END, document, readme_section
from k3bench.report.ladder_plots import draw_plots

DOCUMENT = Path("docs/kda-ladder.md")
PLOTS = Path("docs/plots")
README = Path("README.md")


def ladder_files(report: LadderReport, project_root: Path) -> dict[Path, str]:
    """Every file of the report, relative to the project, with its whole content.

    Raises:
        ReportError: the README lacks the markers that the table goes between.
    """
    readme = (project_root / README).read_text()
    before, begin, rest = readme.partition(README_BEGIN)
    _, end, after = rest.partition(README_END)
    if not begin or not end:
        raise ReportError(
            f"{README}: the markers {README_BEGIN!r} and {README_END!r} are not both there: "
            "put them back where the headline table belongs"
        )
    return {
        DOCUMENT: document(report),
        README: before + readme_section(report) + after,
        **{PLOTS / name: text for name, text in draw_plots(report).items()},
    }
