"""Where the report goes: docs/kda-ladder.md, its plots, and the README's headline table."""

from pathlib import Path

from k3bench.report.ladder import LadderReport, ReportError
from k3bench.report.markdown import README_BEGIN, README_END, document, readme_section
from k3bench.report.plots import draw_plots

DOCUMENT = Path("docs/kda-ladder.md")
PLOTS = Path("docs/plots")
README = Path("README.md")


def files_of(report: LadderReport, project_root: Path) -> dict[Path, str]:
    """Every file the report writes, relative to the project, with its whole content.

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
        **{PLOTS / name: svg for name, svg in draw_plots(report).items()},
    }


def write_report(report: LadderReport, project_root: Path) -> list[Path]:
    """Writes the files that differ; returns their paths, relative to the project."""
    files = files_of(report, project_root)
    changed = stale_files(report, project_root)
    for path in changed:
        target = project_root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.tmp")
        temporary.write_text(files[path])
        temporary.replace(target)
    return changed


def stale_files(report: LadderReport, project_root: Path) -> list[Path]:
    """The files whose content is not what the ledger says."""
    return [
        path
        for path, content in files_of(report, project_root).items()
        if not (project_root / path).is_file() or (project_root / path).read_text() != content
    ]
