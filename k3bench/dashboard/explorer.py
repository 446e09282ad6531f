"""asv's explorer beside the kernel pages: asv-tachyon's interface, and links in both directions."""

import argparse
import contextlib
import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from asv.graph import Graph

from k3bench.dashboard.commits import commits_in_order
from k3bench.dashboard.errors import DashboardError

_ANCHOR = "k3bench-pages"
# Fixed in a corner: neither asv's stock page nor asv-tachyon's leaves a place for it.
_LINK = (
    f'<a id="{_ANCHOR}" href="k3bench/index.html" style="position:fixed;right:12px;bottom:12px;'
    "z-index:9999;padding:6px 12px;border-radius:8px;background:#0b5f9e;color:#fff;"
    'font:14px system-ui,sans-serif;text-decoration:none">Kernel pages</a>\n'
)


def install_explorer(html_dir: Path, repository: Path) -> None:
    """Put asv-tachyon's interface, all assets local, over what ``asv publish`` wrote.

    Args:
        html_dir: what ``asv publish`` wrote; DashboardError where it is not that.
        repository: the clone that subjects of commits come from.
    """
    from asv_tachyon.cli import main  # type: ignore[import-untyped]

    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            main(["install", str(html_dir)])
    except SystemExit as stop:
        if stop.code not in (None, 0):
            raise DashboardError(f"{html_dir}: {stop.code}") from None
    _complete(html_dir, repository)
    link_to_pages(html_dir)


def _complete(html_dir: Path, repository: Path) -> None:
    """Writes what the interface asks for and asv leaves out, so that nothing is asked in vain.

    These are the subjects of commits, two optional lists, and an empty graph for each benchmark
    without a result on some machine. Files that exist stay as they are.
    """
    index = json.loads((html_dir / "index.json").read_text(encoding="utf-8"))
    hashes = {value: revision for revision, value in index["revision_to_hash"].items()}
    dates = index["revision_to_date"]
    moments = {
        commit: datetime.fromtimestamp(dates[revision] / 1000, UTC)
        for commit, revision in hashes.items()
    }
    subjects = {
        hashes[commit.hash]: commit.subject
        for commit in commits_in_order(moments, repository)
        if commit.known
    }
    missing: dict[str, Any] = {
        "commits.json": {"by_revision": subjects, "by_hash": {}},
        "profiles.json": {"paths": {}},
        "regressions-ignore.json": [],
    }
    for parameters in index["graph_param_list"]:
        for benchmark in index["benchmarks"]:
            missing[Graph.get_file_path(parameters, benchmark) + ".json"] = []
    for name, content in missing.items():
        path = html_dir / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(content), encoding="utf-8")


def link_to_pages(html_dir: Path) -> None:
    """Give ``index.html`` a link to the kernel pages; once, however often it is called.

    Raises DashboardError where there is no page to put it into.
    """
    index = html_dir / "index.html"
    try:
        text = index.read_text(encoding="utf-8")
    except OSError as error:
        raise DashboardError(
            f"{index} cannot be read ({error.strerror}): run `asv publish` first"
        ) from error
    before, end, after = text.rpartition("</body>")
    if not end:
        raise DashboardError(f"{index} has no end of a body: run `asv publish` first")
    if f'id="{_ANCHOR}"' not in text:
        index.write_text(before + _LINK + end + after, encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("html_dir", type=Path)
    install_explorer(parser.parse_args().html_dir, Path.cwd())
