"""What is committed agrees: the README's table and the report are what results.sqlite says."""

import subprocess
from pathlib import Path

import pytest

from k3bench.ledger import open_ledger
from k3bench.ledger.check import check
from k3bench.paths import project_root
from k3bench.report import report_files, stale_files


@pytest.fixture
def committed_ledger(tmp_path: Path) -> Path:
    """The ledger of HEAD: the one in the working tree may hold newer runs."""
    shown = subprocess.run(
        ["git", "show", "HEAD:results.sqlite"], cwd=project_root(), capture_output=True, check=False
    )
    if shown.returncode != 0:
        pytest.skip("not a git checkout that holds results.sqlite")
    path = tmp_path / "results.sqlite"
    path.write_bytes(shown.stdout)
    return path


def test_the_committed_documents_are_what_the_committed_ledger_says(committed_ledger: Path) -> None:
    with open_ledger(str(committed_ledger)) as ledger, ledger.session() as session:
        files = report_files(session, project_root())
    # The plots are left out: another matplotlib may draw the same figures with other bytes.
    stale = [path for path in stale_files(files, project_root()) if path.suffix == ".md"]
    assert stale == []


def test_the_committed_ledger_is_small_and_sound(committed_ledger: Path) -> None:
    assert committed_ledger.stat().st_size < 5_000_000
    with open_ledger(str(committed_ledger)) as ledger:
        assert check(ledger).problems == ()
