"""`k3bench workloads`: exit codes, pure JSON on stdout, one line on stderr for a failure."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from shared_data import shared_file

import workloads
from k3bench.cli import k3bench


@pytest.fixture(autouse=True)
def isolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setenv("K3BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(k3bench, ["workloads", *map(str, arguments)])


def write(path: Path, content: str) -> Path:
    path.write_text(content)
    return path


def one_line_error(result: Result) -> str:
    """The only line on stderr, which starts as all errors do."""
    (line,) = result.stderr.splitlines()
    assert line.startswith("k3bench: error: ")
    return line


def test_list_shows_every_workload_with_its_short_hash() -> None:
    result = run("list")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    for workload in map(workloads.get, workloads.all_ids()):
        (line,) = (line for line in lines if line.split()[:1] == [workload.id])
        assert workload.sha256[:12] in line
        assert workload.label in line
        assert f"{workload.tokens:,}" in line


def test_list_as_json_has_full_hashes_and_executed_tokens() -> None:
    rows = {row["id"]: row for row in json.loads(run("list", "--json").stdout)}
    assert set(rows) == set(workloads.all_ids())
    row = rows["sharegpt-k3-surrogate/B8"]
    assert row["sha256"] == workloads.get("sharegpt-k3-surrogate/B8").sha256
    assert "surrogate" in row["label"]
    assert row["tokens"] < row["executed_tokens_16"] < row["executed_tokens_64"]
    assert rows["mla-decode/ctx4K_B1"]["executed_tokens_16"] is None


def test_list_of_one_family() -> None:
    rows = json.loads(run("list", "kda-grid", "--json").stdout)
    assert len(rows) == 56


def test_list_of_an_unknown_family_is_a_usage_error() -> None:
    result = run("list", "kda-gird")
    assert result.exit_code == 64
    assert "did you mean kda-grid" in one_line_error(result)


def test_verify_passes_with_things_absent() -> None:
    result = run("verify")
    assert result.exit_code == 0
    assert "byte-identical" in result.stdout
    assert "absent" in result.stdout


def test_verify_as_json() -> None:
    result = run("verify", "--json")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert document["ok"] is True
    assert {check["status"] for check in document["checks"]} == {"ok", "absent"}


def test_verify_exits_1_when_a_check_fails(tmp_path: Path) -> None:
    run("import", write(tmp_path / "a.json", "[5, 6, 7]"), "--name", "mine")
    (saved,) = (tmp_path / "cache" / "workloads" / "lengths").iterdir()
    saved.write_text(saved.read_text().replace("[5, 6, 7]", "[5, 6, 8]"))
    result = run("verify", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["ok"] is False
    assert "1 of " in one_line_error(result)


def test_build_of_the_surrogate_needs_no_network(tmp_path: Path) -> None:
    result = run("build", "--surrogate", "--output", tmp_path / "out", "--json")
    assert result.exit_code == 0
    files = json.loads(result.stdout)["files"]
    assert sorted(files) == ["draws_sharegpt_k3_surrogate.json", "surrogate_sharegpt_k3.csv"]
    assert all(Path(path).is_file() for path in files.values())


def test_build_into_a_place_that_is_no_directory(tmp_path: Path) -> None:
    place = write(tmp_path / "file", "")
    result = run("build", "--surrogate", "--output", place / "below")
    assert result.exit_code == 74
    assert str(place) in one_line_error(result)


def test_build_without_network_is_one_line_with_the_mend() -> None:
    result = run("build")
    assert result.exit_code == 69
    assert "--surrogate" in one_line_error(result)
    assert result.stdout == ""


def test_build_of_a_wrong_file_is_a_failed_check(tmp_path: Path) -> None:
    dataset = write(tmp_path / "wrong.json", "[]")
    tokenizer = shared_file("tokenizer/kimi.tiktoken.model")
    result = run("build", "--dataset", dataset, "--tokenizer", tokenizer)
    assert result.exit_code == 1
    assert "pinned 672,837,942" in one_line_error(result)


def test_build_of_a_missing_file(tmp_path: Path) -> None:
    tokenizer = shared_file("tokenizer/kimi.tiktoken.model")
    result = run("build", "--dataset", tmp_path / "nothing", "--tokenizer", tokenizer)
    assert result.exit_code == 66


def test_build_of_the_surrogate_takes_no_dataset(tmp_path: Path) -> None:
    assert run("build", "--surrogate", "--dataset", tmp_path).exit_code == 64


def test_import_of_the_real_list_passes() -> None:
    result = run("import", shared_file("lengths/sharegpt_k3_lengths.json"), "--json")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert document["identity"] == "pinned"
    assert document["differences"] == []
    assert document["statistics"]["percentiles"]["p99.9"] == 1016.0
    assert document["statistics"]["buckets"]["513-1024"] == 3_091
    assert "sharegpt-k3-lengths/all" in run("list").stdout


def test_import_of_a_list_with_one_number_changed_fails(tmp_path: Path) -> None:
    document = json.loads(shared_file("lengths/sharegpt_k3_lengths.json").read_text())
    document["lengths"][0] += 1
    path = write(tmp_path / "changed.json", json.dumps(document))
    result = run("import", path, "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["identity"] == "unpinned"
    assert "--name NAME" in one_line_error(result)


def test_import_shows_statistics_beside_the_pinned_ones(tmp_path: Path) -> None:
    result = run("import", write(tmp_path / "a.csv", "5\n6\n7\n"), "--name", "mine")
    assert result.exit_code == 0
    assert "not the pinned distribution" in result.stdout
    assert ["count", "3", "52,229"] in [line.split() for line in result.stdout.splitlines()]
    assert "mine/all, mine/B1" in result.stdout


def test_import_of_a_trace_needs_no_name(tmp_path: Path) -> None:
    path = write(tmp_path / "Azure.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\nx,5,6\ny,7,8\n")
    result = run("import", path)
    assert result.exit_code == 0
    assert "2 requests of a trace in azure format" in result.stdout
    assert "azure/all" in result.stdout


@pytest.mark.parametrize(
    ("content", "code"), [("[5, 6", 65), ("[5, 0]", 65), (None, 66)], ids=["cut", "zero", "missing"]
)
def test_import_of_a_bad_file(tmp_path: Path, content: str | None, code: int) -> None:
    path = tmp_path / "bad.json"
    if content is not None:
        path.write_text(content)
    result = run("import", path, "--json")
    assert result.exit_code == code
    assert str(path) in one_line_error(result)
    assert result.stdout == ""


def test_import_over_another_list_is_a_usage_error(tmp_path: Path) -> None:
    run("import", write(tmp_path / "a.json", "[5, 6]"), "--name", "mine")
    other = write(tmp_path / "b.json", "[5, 7]")
    result = run("import", other, "--name", "mine")
    assert result.exit_code == 64
    assert "--replace" in one_line_error(result)
    assert run("import", other, "--name", "mine", "--replace").exit_code == 0
