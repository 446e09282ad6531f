"""`k3bench attribute profile, page, annotate, store, toy`, as a user calls them."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attribution.compositions import composition
from attribution.fake_server import RANGE, FakeServer
from click.testing import CliRunner, Result

from k3bench.attribution.render.names import RenderError
from k3bench.attribution.render.saved import composition_of, load_composition
from k3bench.cli.attribute import attribute
from k3bench.ledger import open_ledger, select_results


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as running:
        yield running


def call(*arguments: object) -> Result:
    return CliRunner().invoke(attribute, [str(argument) for argument in arguments])


def test_profile_measures_every_point_and_resumes(server: FakeServer, tmp_path: Path) -> None:
    out = tmp_path / "graph.json"
    command = ["profile", server.url, "--config", "graph", "--out", out, "--input-tokens", 16]
    done = call(*command, "--json")
    assert done.exit_code == 0, done.stderr
    document = json.loads(done.stdout)
    assert document == json.loads(out.read_text())
    taken = [(p["measurement"], p["input_tokens"], len(p["samples_s"])) for p in document["points"]]
    assert taken == [("itl", 16, 39), ("ttft", 16, 3)]
    assert document["server"]["model_path"] == "toy"
    before = len(server.requests)
    again = call(*command, "--input-tokens", 32, "--measure", "ttft")
    assert again.exit_code == 0, again.stderr
    assert "ttft 16: in graph.json already" in again.stderr
    prompts = [len(b["input_ids"]) for _, p, b in server.requests[before:] if p == "/generate"]
    assert prompts == [32] * 4


def test_profile_keeps_what_it_had_when_the_server_dies(server: FakeServer, tmp_path: Path) -> None:
    out = tmp_path / "graph.json"
    command = ["profile", server.url, "--config", "graph", "--out", out, "--input-tokens", 16]
    server.behaviour.fail_with = {"/flush_cache": 503}
    died = call(*command)
    assert died.exit_code == 69
    assert "/flush_cache: HTTP 503" in died.stderr
    assert [point["measurement"] for point in json.loads(out.read_text())["points"]] == ["itl"]
    server.behaviour.fail_with = {}
    assert call(*command).exit_code == 0
    points = json.loads(out.read_text())["points"]
    assert [point["measurement"] for point in points] == ["itl", "ttft"]


def test_profile_takes_traces_and_says_what_is_in_them(server: FakeServer, tmp_path: Path) -> None:
    out, traces = tmp_path / "r.json", tmp_path / "traces"
    server.behaviour.info = {"disable_cuda_graph": True, "tp_size": 1}
    done = call(
        *("profile", server.url, "--config", "eager-ranges", "--out", out, "--input-tokens", 16),
        *("--trace-dir", traces, "--steps", 4),
    )
    assert done.exit_code == 0, done.stderr
    assert "1 traces, 1 kernels" in done.stderr
    (point,) = json.loads(out.read_text())["points"]
    assert point["traces"][0]["ranges"] == 1


@pytest.mark.parametrize(
    ("config", "arguments", "code", "message"),
    [
        ("eager", [], 64, "profiles need --trace-dir"),
        ("eager", ["--trace-dir", "{tmp}"], 1, "the server runs with graphs"),
        ("graph-ranges", ["--trace-dir", "{tmp}"], 2, "holds no kernel"),
        ("graph-ranges", ["--measure", "itl"], 1, "ranges perturb"),
        ("graph", ["--dialect", "openai"], 64, "needs the model's name"),
    ],
    ids=["no-directory", "other-server", "empty-profile", "ranges", "no-model"],
)
def test_profile_refuses_with_its_own_exit_code(
    server: FakeServer,
    tmp_path: Path,
    config: str,
    arguments: list[str],
    code: int,
    message: str,
) -> None:
    server.behaviour.events = (RANGE,)
    given = [argument.format(tmp=tmp_path) for argument in arguments]
    done = call(
        *("profile", server.url, "--config", config, "--out", tmp_path / "r.json"),
        *("--input-tokens", 16, *given),
    )
    assert done.exit_code == code, done.stderr
    assert message in done.stderr
    assert not (tmp_path / "r.json").exists()


def test_profile_without_a_server_is_unavailable(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
    done = call("profile", url, "--config", "graph", "--out", tmp_path / "r.json")
    assert done.exit_code == 69
    assert done.stderr.count("\n") == 1


def saved(tmp_path: Path, document: Any, name: str = "c.json") -> Path:
    path = tmp_path / name
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def test_from_a_toy_to_a_page_an_annotated_trace_and_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("K3BENCH_DB", str(tmp_path / "ledger.sqlite"))
    assert call("toy", tmp_path, "--layers", 5, "--steps", 3).exit_code == 0
    how = ["--blocks", tmp_path / "toy-k3.toml", "--device", "cpu"]
    learned = call("learn", tmp_path / "eager.json", *how, "--out", tmp_path / "map.json")
    assert learned.exit_code == 0, learned.stderr
    mapped = ["--map", tmp_path / "map.json", *how]
    applied = call(
        *("apply", tmp_path / "plain.json", *mapped, "--json", "--kernels"),
        *("--label", "toy", "--input-tokens", 6),
    )
    assert applied.exit_code == 0, applied.stderr
    path = saved(tmp_path, applied.stdout)
    assert load_composition(path).to_json(kernels=True) == json.loads(applied.stdout)

    assert call("page", path, "--out", tmp_path / "page.html").exit_code == 0
    assert "aten::linear" in (tmp_path / "page.html").read_text()

    drawn = call("annotate", tmp_path / "plain.json", *mapped, "--out", tmp_path / "with.json.gz")
    assert drawn.exit_code == 0, drawn.stderr
    assert "slices on" in drawn.stderr

    assert "6 rows entered, 0 were there" in call("store", path, "--here", "--engine", "toy").stderr
    again = call("store", path, "--here", "--engine", "toy")
    assert "0 rows entered, 6 were there" in again.stderr
    with open_ledger(str(tmp_path / "ledger.sqlite")).session() as session:
        rows = select_results(session)
    assert {(row.kind, row.device, row.clock) for row in rows} == {("measured", "cpu", "wall")}


def test_a_trace_of_another_machine_is_not_stored_as_measured_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("K3BENCH_DB", str(tmp_path / "ledger.sqlite"))
    path = saved(tmp_path, composition(device="AMD Instinct MI9999X").to_json())
    here = call("store", path, "--here")
    assert here.exit_code == 65
    assert "give the manifest of the machine" in here.stderr
    assert call("store", path, "--source", "a colleague").exit_code == 0
    with open_ledger(str(tmp_path / "ledger.sqlite")).session() as session:
        assert {row.kind for row in select_results(session)} == {"published"}


def test_store_needs_to_know_where_the_traces_are_from(tmp_path: Path) -> None:
    path = saved(tmp_path, composition().to_json())
    assert call("store", path).exit_code == 64
    assert call("store", path, "--here", "--source", "x").exit_code == 64


def test_a_refused_composition_has_no_page(tmp_path: Path) -> None:
    refused = {**composition().to_json(), "refused": True, "blocks": {}, "total_us": None}
    done = call("page", saved(tmp_path, refused), "--out", tmp_path / "page.html")
    assert done.exit_code == 65
    assert "was refused" in done.stderr
    assert not (tmp_path / "page.html").exists()


def edited(**changes: Any) -> dict[str, Any]:
    return {**composition().to_json(kernels=True), **changes}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ([], "expected an object"),
        (edited(phase="both"), "expected decode or prefill"),
        (edited(kind="modelled"), "expected measured"),
        (edited(blocks={}), "with a block at least"),
        (edited(steps=0), "steps: expected an integer from 1"),
        (edited(steps=True), "steps: expected an integer"),
        (edited(total_us=1.0), "but the blocks add to"),
        (edited(total_us=float("nan")), "expected a number from 0"),
        (edited(total_us=10**400), "expected a number from 0"),
        (edited(checks=[{"name": "n", "status": "fine", "detail": "d"}]), "ok, failed or skipped"),
        (edited(checks=[1]), r"checks\[0\]: expected an object"),
        (edited(notes=[1]), "array of strings"),
    ],
)
def test_a_file_that_is_no_composition_is_refused(
    tmp_path: Path, document: Any, message: str
) -> None:
    with pytest.raises(RenderError, match=message):
        load_composition(saved(tmp_path, document))


def test_a_share_that_does_not_follow_from_the_times_is_refused() -> None:
    document = composition().to_json()
    document["blocks"]["kda"]["share"] = 0.5
    with pytest.raises(RenderError, match=r"blocks\.kda\.share: is 0\.5, but us / total_us is"):
        composition_of(document)


def test_a_composition_survives_being_saved() -> None:
    original = composition(measured_us=19387.0, excluded_us=3.0, notes=("n",))
    assert composition_of(json.loads(json.dumps(original.to_json(kernels=True)))) == original
