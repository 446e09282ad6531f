"""Building everything anew and verifying it: what passes, what fails, what is merely absent."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from shared_data import shared_file
from sharegpt_files import byte_tokenizer, expectation, write

import workloads
from workloads import building, committed, draws, pins, registry, sharegpt, store, verification
from workloads.importing import PINNED_NAME, import_file


@pytest.fixture(autouse=True)
def no_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty hub cache and no network, whatever this machine has."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


def checks() -> dict[str, verification.Check]:
    return {check.name: check for check in verification.verify()}


def test_the_surrogate_is_built_without_network(tmp_path: Path) -> None:
    report = building.build(surrogate_only=True, output=tmp_path / "out")
    assert report.lengths_from is None
    for name, path in report.files.items():
        assert path.read_bytes() == (committed.DIRECTORY / name).read_bytes()
    assert draws.REAL_FILE not in report.files


def test_without_network_the_build_says_how_to_mend_and_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(workloads.UnavailableError) as caught:
        building.build(output=tmp_path / "out")
    for mend in ("--dataset FILE", "import FILE", "--surrogate", "HF_HUB_OFFLINE=1"):
        assert mend in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_an_imported_list_serves_where_the_hub_is_out_of_reach(tmp_path: Path) -> None:
    import_file(shared_file("lengths/sharegpt_k3_lengths.json"))
    report = building.build(output=tmp_path / "out")
    assert report.lengths_from.startswith("imported list 'sharegpt-k3-lengths'")
    assert report.counts is None
    for name in pins.DATA_FILE_SHA256:
        assert (tmp_path / "out" / name).read_bytes() == (committed.DIRECTORY / name).read_bytes()


def test_an_imported_list_in_another_order_does_not_serve(tmp_path: Path) -> None:
    document = json.loads(shared_file("lengths/sharegpt_k3_lengths.json").read_text())
    path = tmp_path / "sorted.json"
    path.write_text(json.dumps(sorted(document["lengths"])))
    assert import_file(path).identity == "pinned"
    with pytest.raises(workloads.UnavailableError):
        building.build()


def test_a_given_file_is_never_replaced_by_an_imported_list(tmp_path: Path) -> None:
    import_file(shared_file("lengths/sharegpt_k3_lengths.json"))
    dataset = write(tmp_path / "sharegpt.json")
    with pytest.raises(workloads.UnavailableError):
        building.build(dataset=dataset)  # the tokenizer cannot be had
    with pytest.raises(workloads.PinMismatchError, match="pinned 672,837,942"):
        building.build(dataset=dataset, tokenizer_file=shared_file("tokenizer/kimi.tiktoken.model"))


def test_the_whole_build_runs_from_a_dataset_file(tmp_path: Path, monkeypatch) -> None:
    # The real file has 672 MB: stand in a small one, with pins of its own, for the whole path.
    dataset = write(tmp_path / "sharegpt.json")
    expect = expectation(dataset)
    lengths = (10, 4, 1024, 100)
    content = draws.render(draws.draw(lengths, draws.REAL_LABEL))
    monkeypatch.setattr(sharegpt, "PINNED", expect)
    monkeypatch.setitem(sharegpt.run.__kwdefaults__, "expect", expect)
    monkeypatch.setattr(building.tokenizer, "load", lambda path: byte_tokenizer())
    monkeypatch.setitem(pins.DATA_FILE_SHA256, draws.REAL_FILE, store.sha256_bytes(content))
    report = building.build(dataset=dataset, tokenizer_file=tmp_path / "any")
    assert report.counts == expect.counts
    assert report.files[draws.REAL_FILE].read_bytes() == content
    saved = store.load(PINNED_NAME)
    assert saved.lengths == lengths
    assert saved.output_lengths == (20, 4, 1024, 200)
    assert saved.source_sha256 == expect.file.sha256


def test_verify_passes_and_names_what_is_absent() -> None:
    found = checks()
    assert {check.status for check in found.values()} == {"ok", "absent"}
    absent = {name for name, check in found.items() if check.status == "absent"}
    assert absent == {
        "ShareGPT-derived lists drawn anew",
        "tokenizer file tiktoken.model",
        "dataset file ShareGPT_V3_unfiltered_cleaned_split.json",
    }
    assert found["surrogate built anew"].detail.startswith("2 files are byte-identical")


def test_verify_draws_the_real_lists_anew_from_an_imported_list() -> None:
    import_file(shared_file("lengths/sharegpt_k3_lengths.json"))
    found = checks()
    assert found["ShareGPT-derived lists drawn anew"].status == "ok"
    assert "pinned" in found["imported list sharegpt-k3-lengths"].detail


def test_verify_checks_a_cached_tokenizer(tmp_path: Path) -> None:
    source = shared_file("tokenizer/kimi.tiktoken.model")
    path = tmp_path / "hub" / "models--moonshotai--Kimi-K3" / "snapshots" / pins.TOKENIZER.revision
    path.mkdir(parents=True)
    (path / "tiktoken.model").write_bytes(source.read_bytes())
    assert checks()["tokenizer file tiktoken.model"].status == "ok"
    (path / "tiktoken.model").write_bytes(source.read_bytes()[:-1])
    failed = checks()["tokenizer file tiktoken.model"]
    assert failed.status == "failed"
    assert "2,795,285 bytes" in failed.detail


def test_verify_fails_on_a_changed_data_file(tmp_path: Path, monkeypatch) -> None:
    for name in pins.DATA_FILE_SHA256:
        (tmp_path / name).write_bytes((committed.DIRECTORY / name).read_bytes())
    path = tmp_path / draws.SURROGATE_FILE
    path.write_bytes(path.read_bytes().replace(b"52229", b"52228"))
    monkeypatch.setattr(committed, "DIRECTORY", tmp_path)
    failed = {name for name, check in checks().items() if check.status == "failed"}
    assert f"data file {draws.SURROGATE_FILE}" in failed
    assert "surrogate built anew" in failed
    assert f"data file {draws.REAL_FILE}" not in failed


def test_verify_fails_on_a_changed_surrogate_recipe(monkeypatch) -> None:
    monkeypatch.setattr(pins, "STATISTICS", replace(pins.STATISTICS, mean=108.21))
    monkeypatch.setattr("workloads.surrogate.build.__defaults__", (pins.STATISTICS,))
    assert checks()["surrogate built anew"].status == "failed"


def test_verify_fails_on_a_changed_family(monkeypatch) -> None:
    monkeypatch.setattr(registry, "_families", dict(registry._families))
    grid = workloads.family_workloads("kda-grid")
    registry._build.cache_clear()
    registry._families["kda-grid"] = lambda: grid[:-1]
    try:
        failed = checks()["workloads kda-grid"]
        assert failed.status == "failed"
        assert "another workload and want another name" in failed.detail
    finally:
        registry._build.cache_clear()


def test_verify_says_how_to_pin_a_new_family(monkeypatch) -> None:
    pinned = dict(pins.FAMILY_SHA256)
    hash_of_series = pinned.pop("kda-series")
    monkeypatch.setattr(pins, "FAMILY_SHA256", pinned)
    failed = checks()["workloads kda-series"]
    assert failed.status == "failed"
    assert f"add 'kda-series': '{hash_of_series}'" in failed.detail


def test_verify_fails_on_an_edited_import_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("[5, 6, 7]")
    import_file(path, name="mine")
    saved = store.saved_path("mine")
    saved.write_text(saved.read_text().replace("[5, 6, 7]", "[5, 6, 8]"))
    found = checks()
    assert found["imported list mine"].status == "failed"
    assert found["workloads kda-grid"].status == "ok"


def test_the_pins_for_a_manifest_are_plain_json() -> None:
    record = json.loads(json.dumps(pins.record()))
    assert record["dataset"]["revision"] == "192ab2185289094fc556ec8ce5ce1e8e587154ca"
    assert record["tokenizer"]["size_bytes"] == 2_795_286
    assert record["data_file_sha256"][draws.REAL_FILE] == pins.DATA_FILE_SHA256[draws.REAL_FILE]
