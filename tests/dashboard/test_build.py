"""What the pages are built of: order of commits, shapes, data files, and a tree replaced whole."""

import json
import os
import re
import subprocess
import sys
from copy import deepcopy
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from synthetic import START, clone

import manifests
from k3bench.dashboard.build import build, plotly_script
from k3bench.dashboard.commits import commits_in_order
from k3bench.dashboard.environment import leaves_of
from k3bench.dashboard.errors import DashboardError
from k3bench.dashboard.pages import CONTENT_SECURITY_POLICY, PAGES
from k3bench.dashboard.shapes import shape_of, variant_of
from k3bench.dashboard.tree import Tree, replaced_tree
from k3bench.ledger import Ledger, open_ledger
from k3bench.paths import project_root


def data_of(path: Path) -> Any:
    """What a data file hands to the page: the JSON within its string literal."""
    match = re.fullmatch(r'k3data\("([^"]+)",\'(.*)\'\);\n', path.read_text(), re.DOTALL)
    assert match is not None
    return json.loads(match[2].replace("\\'", "'").replace("\\\\", "\\"))


def test_data_files_survive_quotes_tags_and_separators(tmp_path: Path) -> None:
    value = {"it's": '</script>"\\\n\u2028\u202e', "__proto__": [1.5, None, "\\'"]}
    Tree(tmp_path).data("a/b", value)
    text = (tmp_path / "data/a/b.js").read_text()
    assert text.isascii() and text.count("\n") == 1
    assert data_of(tmp_path / "data/a/b.js") == value


def test_a_tree_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "pages"
    with replaced_tree(target) as tree:
        tree.text("page.html", "first")
    with pytest.raises(RuntimeError), replaced_tree(target) as tree:
        tree.text("page.html", "second")
        raise RuntimeError
    assert (target / "page.html").read_text() == "first"
    with replaced_tree(target) as tree:
        tree.text("other.html", "third")
    assert [path.name for path in target.iterdir() if path.suffix] == ["other.html"]
    assert [path.name for path in tmp_path.iterdir()] == ["pages"]


def test_a_directory_of_somebody_else_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(DashboardError, match="holds files that are not a dashboard's"):
        build(None, tmp_path, repository=tmp_path)
    assert (tmp_path / "thesis.tex").exists()


def test_a_file_as_a_target_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(DashboardError, match="is a file: name a directory"):
        build(None, tmp_path / "file", repository=tmp_path)


def test_commits_come_in_git_s_order_and_foreign_ones_by_time(tmp_path: Path) -> None:
    hashes = clone(tmp_path / "clone", ["first", "second\x1b[31m", "third"])
    seen = dict.fromkeys(reversed(hashes), START)
    foreign = "f" * 40
    seen[foreign] = START + timedelta(days=1, hours=1)
    ordered = commits_in_order(seen, tmp_path / "clone")
    assert [commit.hash for commit in ordered] == [*hashes[:2], foreign, hashes[2]]
    assert [commit.known for commit in ordered] == [True, True, False, True]
    assert ordered[0].subject == "first" and ordered[2].subject == ""


def test_commits_outside_any_clone_come_by_time(tmp_path: Path) -> None:
    moments = {"b" * 40: START, "a" * 40: START + timedelta(hours=1)}
    assert [commit.hash for commit in commits_in_order(moments, tmp_path)] == ["b" * 40, "a" * 40]


@pytest.mark.parametrize(
    ("workload", "family", "numbers", "provenance"),
    [
        ("kda-grid/S1024_B64", "kda-grid", {"S": 1024, "B": 64}, "fixed"),
        ("kda-headline", "kda-headline", {}, "fixed"),
        ("mla-decode/ctx1M_B4", "mla-decode", {"context": 1_047_552, "B": 4}, "fixed"),
        ("mla-decode/ctx32K_B1", "mla-decode", {"context": 32_768, "B": 1}, "fixed"),
        ("compiled-mla/ctx69632_B24", "mla-decode", {"context": 69_632, "B": 24}, "fixed"),
        ("sharegpt-k3/B8", "replay", {"B": 8}, "sharegpt-derived"),
        ("sharegpt-k3-surrogate/B8", "replay", {"B": 8}, "surrogate"),
        ("somebodys-list/B8", "replay", {"B": 8}, "unknown"),
        ("sharegpt-k3/B8/call9", "other", {}, "unknown"),
        ("<script>", "other", {}, "unknown"),
    ],
)
def test_a_workload_id_says_its_family_and_shape(
    workload: str, family: str, numbers: dict[str, int], provenance: str
) -> None:
    shape = shape_of(workload)
    assert (shape.family, dict(shape.numbers), shape.provenance) == (family, numbers, provenance)


def test_latent_bytes_are_those_of_the_cache_read_once() -> None:
    assert shape_of("mla-decode/ctx32K_B4").latent_bytes == 4 * 32_768 * 576 * 2
    assert shape_of("compiled-mla/ctx69632_B24").latent_bytes == 24 * 69_632 * 576 * 2
    assert shape_of("kda-grid/S64_B4").latent_bytes is None


def test_parameters_that_repeat_the_shape_make_no_variant() -> None:
    assert variant_of({"S": 64, "B": 4}) == {}
    assert variant_of({"shape": "S64_B4", "state": "zero"}) == {"shape": "S64_B4", "state": "zero"}


def test_every_leaf_of_a_manifest_is_judged_as_the_manifests_room_judges_it() -> None:
    document = dict(manifests.capture(project_root()))
    leaves = {path: (value, decisive) for path, value, decisive, _ in leaves_of(document)}
    assert leaves["environment.host.name"][1] is False
    assert leaves["environment.cpu.model"] == (document["environment"]["cpu"]["model"], True)
    changed = deepcopy(document)
    changed["environment"]["cpu"]["model"] = "other"
    changed["state"]["captured_at"] = "2026-08-02T00:00:00.000Z"
    for difference in manifests.diff(document, changed):
        assert leaves[difference.path] == (difference.a, not difference.comparable)


def test_only_the_newest_commits_are_detailed_but_the_history_is_whole(
    plain_ledger: tuple[Ledger, Path], tmp_path: Path
) -> None:
    ledger, repository = plain_ledger
    built = build(ledger, tmp_path / "pages", repository=repository, detailed_commits=2)
    data = tmp_path / "pages" / "data"
    index, series = data_of(data / "index.js"), data_of(data / "series.js")
    assert (built.commits, len(index["commits"])) == (6, 6)
    for view in index["views"]:
        assert [entry[0] for entry in view["at"]] in ([5, 4], [None])
    number = next(n for n, entry in enumerate(series["series"]) if entry[5][0] == "measured")
    document = data_of(data / f"series/{number}.js")
    assert document["rows"] == 6 and document["columns"]["commit"] == [0, 1, 2, 3, 4, 5]
    assert set(data_of(data / f"samples/{number}.js")) == set(document["columns"]["id"][-2:])


def test_building_twice_gives_the_same_bytes(
    plain_ledger: tuple[Ledger, Path], tmp_path: Path
) -> None:
    ledger, repository = plain_ledger
    trees = []
    for name in ("one", "two"):
        build(ledger, tmp_path / name, repository=repository)
        files = sorted(path for path in (tmp_path / name).rglob("*") if path.is_file())
        trees.append({path.relative_to(tmp_path / name): path.read_bytes() for path in files})
    assert trees[0] == trees[1]


def test_no_page_or_data_file_names_a_path_of_this_machine(
    plain_ledger: tuple[Ledger, Path], tmp_path: Path
) -> None:
    ledger, repository = plain_ledger
    build(ledger, tmp_path / "pages", repository=repository)
    for path in (tmp_path / "pages").rglob("*"):
        if path.is_file() and path.suffix in (".html", ".js") and "plotly" not in path.name:
            assert str(tmp_path) not in path.read_text(encoding="utf-8")


def test_every_page_has_the_policy_and_only_local_assets(tmp_path: Path) -> None:
    build(None, tmp_path / "pages", repository=tmp_path)
    for page in PAGES:
        text = (tmp_path / "pages" / page.file).read_text()
        assert CONTENT_SECURITY_POLICY in text
        for address in re.findall(r'(?:src|href)="([^"]+)"', text):
            assert address == "#main" or (tmp_path / "pages" / address).is_file()
    assert "script-src 'self';" in CONTENT_SECURITY_POLICY


def test_plotly_s_map_style_is_recognised() -> None:
    script, style_id = plotly_script()
    assert "plotly.js v" in script[:200]
    assert style_id is not None and len(style_id) == 64


def test_our_scripts_make_no_markup_of_texts() -> None:
    assets = Path(sys.modules["k3bench.dashboard.build"].__file__).parent / "assets"
    for script in assets.glob("*.js"):
        text = script.read_text()
        for word in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(",
                     "new Function", "fetch(", "XMLHttp", "import("):  # fmt: skip
            assert word not in text, f"{script.name} uses {word}"


@pytest.mark.parametrize("detailed", [0, -1])
def test_showing_no_commit_is_refused(tmp_path: Path, detailed: int) -> None:
    with pytest.raises(DashboardError, match="show at least one commit"):
        build(None, tmp_path / "pages", repository=tmp_path, detailed_commits=detailed)


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", RUN, *arguments],
        capture_output=True, text=True, check=False, env={**os.environ, **environment},
    )  # fmt: skip


RUN = (
    "import sys; from k3bench.cli import COMMANDS, main; "
    "COMMANDS.setdefault('dashboard', ('dashboard', '')); main(['dashboard', *sys.argv[1:]])"
)


def test_the_command_builds_and_says_what(tmp_path: Path) -> None:
    with open_ledger(str(tmp_path / "ledger.sqlite")) as ledger:
        from k3bench.ledger.published import seed

        seed(ledger)
    done = command(
        "--out", str(tmp_path / "pages"), "--json", K3BENCH_DB=str(tmp_path / "ledger.sqlite")
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["results"] > 50 and Path(said["index"]).is_file()


def test_the_command_without_a_ledger_builds_pages_that_say_so(tmp_path: Path) -> None:
    done = command("--out", str(tmp_path / "pages"), K3BENCH_DB=str(tmp_path / "absent.sqlite"))
    assert done.returncode == 0 and "no ledger at" in done.stderr
    assert (tmp_path / "pages/index.html").is_file()


def test_the_command_refuses_a_directory_of_somebody_else(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    done = command("--out", str(tmp_path), K3BENCH_DB=str(tmp_path / "absent.sqlite"))
    assert done.returncode == 64 and "not a dashboard's" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
