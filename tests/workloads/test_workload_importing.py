"""Importing lengths: formats read strictly, distributions told by hash, names never taken over."""

import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shared_data import shared_file
from sharegpt_files import one_number_changed, spread_lengths

import workloads
from workloads import importing, pins, readers, store, surrogate
from workloads.importing import import_file


def write(path: Path, content: object) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.fixture(scope="module")
def real_lengths() -> list[int]:
    return json.loads(shared_file("lengths/sharegpt_k3_lengths.json").read_text())["lengths"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("list.json", "[5, 17, 900]"),
        ("object.json", '{"lengths": [5, 17, 900], "note": "x"}'),
        ("plain.csv", "5\n17\n900\n"),
        ("header.csv", "length\n5\n17\n900\n"),
        ("windows.csv", "\ufeffprompt_tokens\r\n5\r\n17\r\n900"),
        ("more.csv", 'id,input_tokens,text\na,5,x\nb,17,"y, z"\nc,900,\n'),
        ("blank-lines.csv", "5\n\n 17 \n900\n\n"),
    ],
)
def test_every_form_of_a_list_is_read(tmp_path: Path, name: str, content: str) -> None:
    read = readers.read(write(tmp_path / name, content))
    assert (read.form, read.lengths) == ("lengths", (5, 17, 900))


@given(st.lists(st.integers(1, 2**31 - 1), min_size=1))
def test_a_list_comes_back_as_it_was_written(tmp_path_factory, lengths: list[int]) -> None:
    folder = tmp_path_factory.mktemp("lists")
    assert readers.read(write(folder / "a.json", lengths)).lengths == tuple(lengths)
    lines = "".join(f"{length}\n" for length in lengths)
    assert readers.read(write(folder / "a.csv", lines)).lengths == tuple(lengths)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[5, 17", "not whole JSON"),
        ("[5, 17.0]", r"lengths\[1\]: 17.0 is not a whole number"),
        ("[5, true]", r"lengths\[1\]: True is not a whole number"),
        ('[5, "17"]', r"lengths\[1\]: '17' is text"),
        ("[5, 0]", r"lengths\[1\]: 0 tokens; at least 1"),
        ("[5, -3]", r"lengths\[1\]: -3 tokens"),
        ("[5, 1e400]", "not a whole number"),
        ("[[5]]", "not a whole number"),
        ("[]", "holds no lengths"),
        ('{"counts": [5]}', "neither a JSON list nor an object"),
        ('{"lengths": 5}', "neither a JSON list nor an object"),
        ("", "no CSV of lengths"),
        ("word\n5\n", "no CSV of lengths"),
        ("length\n", "holds no lengths"),
        ("length\n5\nx\n", "line 3: 'x' is not a whole number"),
        ("length\n5\n1.5\n", "line 3: '1.5' is not a whole number"),
        ("length,b\n5,1\n6\n", "line 3: 1 fields, the header has 2"),
        ("5\n6,7\n", "line 2: more than one column"),
        ("5\n0\n", "line 2: 0 tokens"),
        ("5\n99999999999\n", "line 2: 99999999999 tokens"),
        ('length\n"5\n', "line 2"),
    ],
)
def test_a_broken_list_is_named_with_the_place(tmp_path: Path, content: str, says: str) -> None:
    path = write(tmp_path / "broken", content)
    with pytest.raises(workloads.MalformedInputError, match=says) as caught:
        import_file(path)
    assert str(path) in str(caught.value)
    assert store.saved_names() == []


def test_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    path = tmp_path / "binary.csv"
    path.write_bytes(b"5\n\xff\n")
    with pytest.raises(workloads.MalformedInputError, match="not UTF-8 text"):
        import_file(path)


def test_a_missing_file_and_a_directory_are_named(tmp_path: Path) -> None:
    with pytest.raises(workloads.MissingInputError, match="is not there"):
        import_file(tmp_path / "nothing.csv")
    with pytest.raises(workloads.MissingInputError, match="is a directory"):
        import_file(tmp_path)


def test_the_dataset_itself_is_no_list(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(readers, "_MAX_FILE_BYTES", 10)
    with pytest.raises(workloads.MalformedInputError, match="build --dataset FILE"):
        import_file(write(tmp_path / "big.json", [1000] * 10))


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(workloads.WorkloadError, match="format 'xml' is unknown"):
        import_file(write(tmp_path / "a.json", [5]), form="xml")


def test_the_real_list_is_recognised(tmp_path: Path) -> None:
    report = import_file(shared_file("lengths/sharegpt_k3_lengths.json"))
    assert report.identity == "pinned"
    assert report.differences == ()
    assert report.statistics.buckets == pins.STATISTICS.buckets
    assert report.in_file_order
    assert report.name == importing.PINNED_NAME
    whole = workloads.get("sharegpt-k3-lengths/all")
    assert whole.tokens == sum(call.tokens for call in whole.calls) == 5_651_078
    assert whole.label == "ShareGPT-derived"


def test_the_real_list_is_recognised_in_any_order(tmp_path: Path, real_lengths) -> None:
    shuffled = list(real_lengths)
    random.Random(0).shuffle(shuffled)
    report = import_file(write(tmp_path / "shuffled.json", shuffled))
    assert report.identity == "pinned"
    assert not report.in_file_order


def test_the_order_of_the_file_is_kept_once_it_is_known(tmp_path: Path, real_lengths) -> None:
    in_order = shared_file("lengths/sharegpt_k3_lengths.json")
    other_order = write(tmp_path / "sorted.json", sorted(real_lengths))
    for path, kept in [
        (other_order, sorted(real_lengths)), (in_order, real_lengths), (other_order, real_lengths)
    ]:  # fmt: skip
        assert import_file(path).identity == "pinned"
        assert list(store.load(importing.PINNED_NAME).lengths) == kept


def test_one_number_changed_is_refused_although_every_statistic_agrees(
    tmp_path: Path, real_lengths
) -> None:
    report = import_file(write(tmp_path / "changed.json", one_number_changed(real_lengths)))
    assert report.differences == ()
    assert report.identity == "unpinned"
    assert report.name is None
    assert "at least one length differs" in report.explanation
    assert store.saved_names() == []


def test_a_length_missing_is_refused_and_said(tmp_path: Path, real_lengths) -> None:
    report = import_file(write(tmp_path / "short.json", real_lengths[:-1]))
    assert report.name is None
    assert "count is 52,228, pinned 52,229" in report.explanation


def test_the_genuine_prefix_is_imported_as_not_pinned() -> None:
    path = shared_file("lengths/prefix_kimi_lengths.csv")
    assert import_file(path).name is None
    report = import_file(path, name="prefix")
    assert report.form == "pairs"
    assert report.identity == "unpinned"
    assert report.statistics.count == 9_879
    assert report.dropped_by_length_filter == 11_135 - 9_879
    assert "count is 9,879, pinned 52,229" in report.explanation
    replay = workloads.get("prefix/B8")
    assert replay.provenance == "imported"
    assert "not the pinned distribution" in replay.label


def test_the_surrogate_is_recognised_and_keeps_saying_so(tmp_path: Path) -> None:
    path = write(tmp_path / "list.json", list(surrogate.load_committed()))
    report = import_file(path)
    assert report.identity == "surrogate"
    assert report.name == importing.SURROGATE_NAME
    assert "surrogate" in report.explanation
    assert "surrogate" in workloads.get(report.workload_ids[0]).label
    with pytest.raises(workloads.WorkloadError, match="would hide that"):
        import_file(path, name="real-lengths")


def test_a_named_list_becomes_workloads(tmp_path: Path) -> None:
    lengths = spread_lengths(500)
    report = import_file(write(tmp_path / "my.json", lengths), name="mine")
    assert report.workload_ids == (
        "mine/all", *(f"mine/B{batch}" for batch in (1, 2, 4, 8, 16, 32, 64))
    )  # fmt: skip
    assert workloads.ids("mine") == report.workload_ids
    whole = workloads.get("mine/all")
    assert [call.new_tokens for call in whole.calls] == [(length,) for length in lengths]
    replay = workloads.get("mine/B4")
    assert len(replay.calls) == 100
    assert {call.new_tokens[0] for call in replay.calls} <= set(lengths)
    assert set(report.workload_ids) <= set(workloads.all_ids())


def test_the_order_of_an_imported_list_does_not_change_its_draws(tmp_path: Path) -> None:
    lengths = spread_lengths(300)
    import_file(write(tmp_path / "a.json", lengths), name="forward")
    import_file(write(tmp_path / "b.json", lengths[::-1]), name="backward")
    assert workloads.get("forward/B8").sha256 == workloads.get("backward/B8").sha256


def test_a_single_length_is_replayed_whole_and_not_drawn_from(tmp_path: Path) -> None:
    report = import_file(write(tmp_path / "one.json", [77]), name="one")
    assert report.workload_ids == ("one/all",)
    with pytest.raises(workloads.WorkloadError, match="no workload is called 'one/B1'"):
        workloads.get("one/B1")


def test_a_name_in_use_is_only_replaced_when_asked(tmp_path: Path) -> None:
    first = write(tmp_path / "first.json", spread_lengths(50))
    second = write(tmp_path / "second.json", spread_lengths(51))
    import_file(first, name="mine")
    import_file(first, name="mine")  # the same lengths: nothing to lose
    with pytest.raises(workloads.WorkloadError, match=r"already holds other lengths .*first\.json"):
        import_file(second, name="mine")
    assert store.load("mine").source == "first.json"
    import_file(second, name="mine", replace=True)
    assert store.load("mine").source == "second.json"


@pytest.mark.parametrize("name", ["", "Big", "a/b", "../up", "a b", "-x", "x" * 65])
def test_a_name_that_is_no_file_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(workloads.WorkloadError, match="is not usable"):
        import_file(write(tmp_path / "a.json", [5, 6]), name=name)


def test_a_built_in_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(workloads.WorkloadError, match="is a built-in workload"):
        import_file(write(tmp_path / "a.json", [5, 6]), name="kda-grid")


def test_a_stored_list_that_was_edited_is_refused(tmp_path: Path) -> None:
    import_file(write(tmp_path / "a.json", [5, 6, 7]), name="mine")
    path = store.saved_path("mine")
    path.write_text(path.read_text().replace("[5, 6, 7]", "[5, 6, 8]"))
    with pytest.raises(workloads.PinMismatchError, match="has changed since it was imported"):
        workloads.get("mine/all")


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"name": "mine"}'])
def test_a_stored_list_that_is_damaged_is_named(tmp_path: Path, content: str) -> None:
    path = store.saved_path("mine")
    path.parent.mkdir(parents=True)
    path.write_text(content)
    with pytest.raises(workloads.MalformedInputError, match="is damaged"):
        store.load("mine")
    import_file(write(tmp_path / "a.json", [5, 6, 7]), name="mine", replace=True)
    assert store.load("mine").lengths == (5, 6, 7)


def test_the_cache_is_where_the_environment_says(cache: Path, tmp_path: Path) -> None:
    import_file(write(tmp_path / "a.json", [5, 6, 7]), name="mine")
    assert store.saved_path("mine").is_relative_to(cache)


def test_without_the_environment_the_cache_lies_in_the_project(monkeypatch) -> None:
    monkeypatch.delenv("K3BENCH_CACHE")
    assert store.cache_directory() == Path(__file__).resolve().parents[2] / ".k3bench"


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "file.json"
    store.write_atomically(path, b"old")

    def full_disk(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match="No space"):
        store.write_atomically(path, b"new")
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.json"]
    assert path.read_bytes() == b"old"
