"""The asv publisher that puts the kernel pages into what ``asv publish`` writes."""

from pathlib import Path
from typing import Any

from asv import util
from asv.console import log
from asv.publishing import OutputPublisher

DIRECTORY = "k3bench"


class KernelPages(OutputPublisher):  # type: ignore[misc]
    """asv finds subclasses of OutputPublisher once the plugin has imported them."""

    name = "k3bench"
    button_label = "Kernel pages"
    description = "Latency grid, speed-up, ablation, schedule, bandwidth, history and every result"

    @classmethod
    def publish(cls, conf: Any, repo: Any, benchmarks: Any, graphs: Any, revisions: Any) -> None:
        """Builds the pages of the project's ledger and links asv's index to them."""
        # Only now: asv loads its plugins for every command.
        from k3bench.dashboard.build import build
        from k3bench.dashboard.errors import DashboardError
        from k3bench.dashboard.explorer import link_to_pages
        from k3bench.ledger import LedgerError, open_ledger

        html, root = Path(conf.html_dir), Path.cwd()
        try:
            ledger = open_ledger(project_root=root, create=False)
        except LedgerError as error:
            if error.reason != "missing":
                raise util.UserError(str(error)) from None
            ledger = None  # a clone that measured nothing: the pages say what to run
        try:
            link_to_pages(html)
            built = build(ledger, html / DIRECTORY, repository=root)
        except (DashboardError, LedgerError) as error:
            raise util.UserError(str(error)) from None
        finally:
            if ledger is not None:
                ledger.close()
        log.info(f"{built.results} results of {built.commits} commits in {DIRECTORY}/index.html")
