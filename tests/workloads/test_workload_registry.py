"""The registry: the names that must exist, what an unknown name says, how light the import is."""

import subprocess
import sys

import pytest

import workloads
from workloads import pins, registry
from workloads.model import KdaGeometry, Workload, prefill
from workloads.verification import family_sha256


def test_the_grid_has_the_56_points() -> None:
    grid = workloads.family_workloads("kda-grid")
    shapes = {(w.call.new_tokens[0], w.call.batch) for w in grid}
    assert shapes == {
        (length, batch)
        for length in (8, 16, 32, 64, 128, 256, 512, 1024)
        for batch in (1, 2, 4, 8, 16, 32, 64)
    }
    assert len(grid) == 56
    assert {w.geometry for w in grid} == {KdaGeometry(24, 128, 128, 64, "bfloat16")}
    assert workloads.get("kda-grid/S64_B4").call.new_tokens == (64,) * 4


def test_the_headline_is_8192_tokens_as_four_sequences_over_16_heads() -> None:
    headline = workloads.get("kda-headline")
    assert headline.call.new_tokens == (2048,) * 4
    assert headline.tokens == 8192
    assert headline.geometry == KdaGeometry(heads=16)


def test_decode_attends_to_1k_and_to_the_published_contexts() -> None:
    contexts = {w.call.kv_lengths[0] for w in workloads.family_workloads("mla-decode")}
    assert contexts == {1024, 4096, 32_768, 65_536, 524_288, 1_047_552}
    assert all(set(w.call.new_tokens) == {1} for w in workloads.family_workloads("mla-decode"))


def test_decode_at_1m_reads_the_published_bytes() -> None:
    # 28.96 GB a step: 576 bf16 numbers a token and layer, 24 layers.
    workload = workloads.get("mla-decode/ctx1M_B1")
    geometry = workload.geometry
    cache_bytes = sum(workload.call.kv_lengths) * 24 * 2
    cache_bytes *= geometry.kv_lora_rank + geometry.rope_dim
    assert round(cache_bytes / 1e9, 2) == 28.96


def test_chunks_after_a_prefix_have_the_published_query_key_pairs() -> None:
    def pairs(call) -> int:
        cached, new = call.cached_tokens[0], call.new_tokens[0]
        return cached * new + new * (new + 1) // 2

    assert f"{pairs(workloads.get('mla-prefill/T16K_B1').call):.2e}" == "1.34e+08"
    assert f"{pairs(workloads.get('mla-chunk/ctx32K_last').call):.2e}" == "4.03e+08"


def test_every_id_resolves_to_the_workload_of_that_id() -> None:
    ids = workloads.all_ids()
    assert len(set(ids)) == len(ids)
    assert [workloads.get(workload_id).id for workload_id in ids] == list(ids)


@pytest.mark.parametrize("name", workloads.families())
def test_every_family_is_pinned(name: str) -> None:
    assert family_sha256(name) == pins.FAMILY_SHA256[name]


def test_no_pin_is_left_without_its_family() -> None:
    assert set(pins.FAMILY_SHA256) == set(workloads.families())


def test_a_surrogate_calls_itself_one_in_every_text() -> None:
    surrogates = [w for w in map(workloads.get, workloads.all_ids()) if w.provenance == "surrogate"]
    assert len(surrogates) == 7
    for workload in surrogates:
        assert "surrogate" in workload.id
        assert "surrogate" in workload.label
        assert "surrogate" in workload.description


def test_nothing_else_calls_itself_a_surrogate() -> None:
    for workload in map(workloads.get, workloads.all_ids()):
        if workload.provenance != "surrogate":
            assert "surrogate" not in workload.id + workload.label


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("kda-grid/S64_B3", "kda-grid/S64_B"),
        ("kda-gird/S64_B4", "kda-grid"),
        ("sharegpt-k3/B128", "sharegpt-k3/B"),
        ("zzzzzz", "list shows all"),
    ],
)
def test_an_unknown_id_names_its_neighbours(wrong: str, near: str) -> None:
    with pytest.raises(workloads.WorkloadError, match=f"{wrong!r}.*{near}"):
        workloads.get(wrong)


def test_an_unknown_family_is_refused() -> None:
    with pytest.raises(workloads.WorkloadError, match="no workload family"):
        workloads.ids("kda-gird")


@pytest.fixture
def scratch_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_families", dict(registry._families))
    registry._build.cache_clear()
    yield
    registry._build.cache_clear()


def a_workload(workload_id: str) -> Workload:
    return Workload(
        id=workload_id,
        kind="kda-prefill",
        provenance="fixed",
        geometry=KdaGeometry(heads=1),
        calls=(prefill(5),),
        label="fixed shape",
        description="five tokens",
    )


def test_a_new_family_is_one_function(scratch_registry) -> None:
    @workloads.family("mine")
    def mine():
        yield a_workload("mine/five")

    assert workloads.get("mine/five").tokens == 5
    assert "mine/five" in workloads.all_ids()


def test_a_family_registered_twice_is_refused(scratch_registry) -> None:
    with pytest.raises(workloads.WorkloadError, match="registered twice"):
        workloads.family("kda-grid")(lambda: ())


@pytest.mark.parametrize("ids", [["other/five"], ["mine/five", "mine/five"]])
def test_a_family_with_foreign_or_double_ids_is_refused(scratch_registry, ids) -> None:
    workloads.family("mine")(lambda: [a_workload(i) for i in ids])
    with pytest.raises(workloads.WorkloadError, match="occur once"):
        workloads.ids("mine")


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = (
        "import sys, workloads\n"
        "[workloads.get(i).sha256 for i in workloads.all_ids()]\n"
        "heavy = {'numpy', 'datasets', 'tiktoken', 'torch', 'ijson', 'huggingface_hub', 'jax'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert output.stdout.strip() == "[]"
