"""`k3bench manifest`: from this machine, from files, from the ledger; and the verdict of a diff."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from k3bench.cli.manifest import manifest as command
from k3bench.ledger import ingest, open_ledger
from manifests import capture, manifest_id, validate

PROJECT = Path(__file__).resolve().parents[2]


def k3bench_manifest(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return capture(PROJECT)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, Any], Path]:
    def write(name: str, content: Any) -> Path:
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return write


@pytest.fixture
def ledger(tmp_path: Path, document: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> str:
    """A ledger with one manifest; its id."""
    url = str(tmp_path / "ledger.sqlite")
    monkeypatch.setenv("K3BENCH_DB", url)
    opened = open_ledger(url)
    ingest(opened, [], manifests=[document])
    opened.close()
    return manifest_id(document)


def with_governor(document: dict[str, Any], governor: str) -> dict[str, Any]:
    other = copy.deepcopy(document)
    other["environment"]["cpu"]["clock_policy"]["governor"] = governor
    return other


def test_show_without_an_argument_captures_this_machine() -> None:
    done = k3bench_manifest("show", "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    validate(json.loads(done.stdout))


def test_show_prints_fields_and_the_id(
    document: dict[str, Any], write: Callable[[str, Any], Path]
) -> None:
    done = k3bench_manifest("show", write("m.json", document))
    assert manifest_id(document) in done.stdout
    assert "environment.cpu.clock_policy.governor" in done.stdout
    assert f"{len(document['environment']['distributions'])} installed" in done.stdout


def test_show_json_reads_back_as_the_same_manifest(
    document: dict[str, Any], write: Callable[[str, Any], Path]
) -> None:
    done = k3bench_manifest("show", write("m.json", document), "--json")
    assert manifest_id(json.loads(done.stdout)) == manifest_id(document)


def test_show_finds_a_manifest_in_the_ledger_by_a_prefix(
    document: dict[str, Any], ledger: str
) -> None:
    for name in (ledger, ledger[:6]):
        done = k3bench_manifest("show", name, "--json")
        assert (done.exit_code, json.loads(done.stdout)) == (0, document)


def test_an_id_that_the_ledger_does_not_have_is_missing_input(ledger: str) -> None:
    absent = ("0" if ledger[0] != "0" else "1") * 64
    done = k3bench_manifest("show", absent)
    assert done.exit_code == 66
    assert "no manifest" in done.stderr


def test_a_ledger_that_is_not_there_is_missing_input_and_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("K3BENCH_DB", str(tmp_path / "absent.sqlite"))
    done = k3bench_manifest("show", "abc123")
    assert done.exit_code == 66
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "exit_code", "words"),
    [
        ('{"schema', 65, "not JSON"),
        ("[]", 65, "an object is wanted"),
        ({"schema_version": 0}, 65, "schema_version is 0"),
    ],
    ids=["truncated", "a-list", "another-version"],
)
def test_a_malformed_file_is_named(
    write: Callable[[str, Any], Path], content: Any, exit_code: int, words: str
) -> None:
    path = write("m.json", content)
    done = k3bench_manifest("show", path)
    assert done.exit_code == exit_code
    assert words in done.stderr
    assert path.name in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_name_that_is_neither_file_nor_id_says_both() -> None:
    done = k3bench_manifest("show", "nonsense.json")
    assert done.exit_code == 66
    assert "no such file, and no manifest id" in done.stderr


def test_a_diff_of_harmless_differences_is_comparable(
    document: dict[str, Any], write: Callable[[str, Any], Path]
) -> None:
    other = copy.deepcopy(document)
    other["state"]["load"]["load_1min"] = 77.25
    other["environment"]["host"]["name"] = "elsewhere"
    done = k3bench_manifest("diff", write("a.json", document), write("b.json", other))
    assert done.exit_code == 0
    assert "77.25" in done.stdout
    assert "comparable (2 harmless differences)" in done.stderr


def test_a_diff_of_two_governors_could_not_be_judged(
    document: dict[str, Any], write: Callable[[str, Any], Path]
) -> None:
    a = write("a.json", with_governor(document, "performance"))
    b = write("b.json", with_governor(document, "powersave"))
    done = k3bench_manifest("diff", a, b)
    assert done.exit_code == 2
    assert "NO" in done.stdout
    assert "environment.cpu.clock_policy.governor differ" in done.stderr
    done = k3bench_manifest("diff", a, b, "--json")
    assert done.exit_code == 2
    report = json.loads(done.stdout)
    assert report["comparable"] is False
    assert report["a"]["fingerprint"] != report["b"]["fingerprint"]
    (difference,) = report["differences"]
    assert (difference["a"], difference["b"]) == ("performance", "powersave")
    assert difference["comparable"] is False


def test_a_manifest_is_comparable_to_itself_from_file_and_ledger(
    document: dict[str, Any], ledger: str, write: Callable[[str, Any], Path]
) -> None:
    done = k3bench_manifest("diff", ledger[:8], write("m.json", document), "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["differences"] == []
