"""Ids, fingerprints and differences: what may be compared, and what may not."""

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests import (
    ABSENT,
    ManifestError,
    canonical_json,
    capture,
    comparable,
    diff,
    fingerprint,
    manifest_id,
)


@pytest.fixture(scope="module")
def manifest() -> dict[str, Any]:
    return capture(Path(__file__).parent)


def changed(manifest: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with one field set, by its dotted path."""
    copied = copy.deepcopy(manifest)
    *parents, last = path.split(".")
    inner = copied
    for step in parents:
        inner = inner[step]
    inner[last] = value
    return copied


def shuffled(value: Any) -> Any:
    if isinstance(value, dict):
        keys = list(value)
        random.Random(7).shuffle(keys)
        return {key: shuffled(value[key]) for key in keys}
    return [shuffled(inner) for inner in value] if isinstance(value, list) else value


def test_the_id_depends_on_the_content_and_not_on_the_order_of_keys(
    manifest: dict[str, Any],
) -> None:
    reordered = shuffled(manifest)
    assert json.dumps(reordered) != json.dumps(manifest)
    assert manifest_id(reordered) == manifest_id(manifest)
    assert fingerprint(reordered) == fingerprint(manifest)
    assert manifest_id(changed(manifest, "state.settings", {"a": "b"})) != manifest_id(manifest)


def test_the_id_is_that_of_the_file_read_back(manifest: dict[str, Any]) -> None:
    assert manifest_id(json.loads(json.dumps(manifest, indent=3))) == manifest_id(manifest)


def test_two_captures_of_the_same_machine_may_be_compared(manifest: dict[str, Any]) -> None:
    again = capture(Path(__file__).parent)
    yes, differences = comparable(manifest, again)
    assert yes, differences
    assert "state.captured_at" in {difference.path for difference in differences}
    assert fingerprint(again) == fingerprint(manifest)
    assert manifest_id(again) != manifest_id(manifest)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("schema_version", 2),
        ("environment.cpu.model", "another"),
        ("environment.cpu.threads", 512),
        ("environment.cpu.microcode", "0x1"),
        ("environment.cpu.clock_policy.governor", "powersave"),
        ("environment.cpu.clock_policy.turbo", "neither"),
        ("environment.affinity.cpus", "4095"),
        ("environment.limits.cpu_cores", 0.123),
        ("environment.libraries.distributions.jax", "0.0.1"),
        ("environment.libraries.torch_git", "0" * 40),
        ("environment.variables.XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false"),
        ("environment.threads.requested.OMP_NUM_THREADS", "12345"),
        ("environment.accelerators.amd.driver_version", "6.14"),
        ("environment.accelerators.nvidia.devices", [{"name": "H200"}]),
        ("environment.python.version", "3.99.0"),
        ("environment.something_new", 1),
    ],
)
def test_a_difference_that_makes_timings_incomparable(
    manifest: dict[str, Any], path: str, value: Any
) -> None:
    other = changed(manifest, path, value)
    yes, differences = comparable(manifest, other)
    assert not yes
    assert not differences[0].comparable
    assert differences[0].path.startswith(path)
    assert fingerprint(other) != fingerprint(manifest)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("environment.host.name", "elsewhere"),
        ("environment.distributions.pytest", "0.1"),
        ("environment.variables.TPU_WORKER_ID", "3"),
        ("environment.accelerators.tpu.device_kind", "TPU v6 lite"),
        ("state.load.load_1min", 99.5),
        ("state.load.memory_free_bytes", 1),
        ("state.captured_at", "2000-01-01T00:00:00.000Z"),
        ("source.commit", "f" * 40),
        ("source.workload_pins", {"kda-headline": "0" * 64}),
    ],
)
def test_a_difference_that_timings_survive(manifest: dict[str, Any], path: str, value: Any) -> None:
    yes, differences = comparable(manifest, changed(manifest, path, value))
    assert yes
    assert [difference.path.startswith(path) for difference in differences] == [True]
    assert fingerprint(changed(manifest, path, value)) == fingerprint(manifest)


def test_a_specimen_may_differ_and_a_vbios_may_not() -> None:
    def with_board(**fields: str) -> dict[str, Any]:
        board = {"unique_id": "0x1", "vbios": "113-A", "pci_address": "0000:05:00.0", **fields}
        return {"environment": {"accelerators": {"amd": {"devices": [{}, board]}}}}

    assert comparable(with_board(), with_board(unique_id="0x2", pci_address="0000:15:00.0"))[0]
    yes, differences = comparable(with_board(), with_board(vbios="113-B"))
    assert not yes
    assert differences[0].path == "environment.accelerators.amd.devices[1].vbios"
    assert (differences[0].a, differences[0].b) == ("113-A", "113-B")


def test_an_absent_field_is_told_from_one_that_could_not_be_read() -> None:
    found = diff({"environment": {}}, {"environment": {"cpu": None}})
    assert [(item.path, item.a, item.b) for item in found] == [("environment.cpu", ABSENT, None)]


def test_incomparable_differences_come_first() -> None:
    a = {"environment": {"host": {"name": "x"}, "kernel": 1}, "state": {"load": 1}}
    b = {"environment": {"host": {"name": "y"}, "kernel": 2}, "state": {"load": 2}}
    assert [item.comparable for item in diff(a, b)] == [False, True, True]


KEYS = st.sampled_from(
    [
        *("environment", "state", "source", "host", "name", "accelerators", "amd", "tpu"),
        *("devices", "unique_id", "variables", "TPU_NAME", "distributions", "x"),
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.0, -0.0, 1.0, "", "a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)
DOCUMENTS = st.dictionaries(KEYS, VALUES, max_size=3)


@given(DOCUMENTS, DOCUMENTS)
def test_equal_fingerprints_mean_comparable_and_nothing_else_does(
    a: dict[str, Any], b: dict[str, Any]
) -> None:
    assert comparable(a, b)[0] == (fingerprint(a) == fingerprint(b))


@given(DOCUMENTS, DOCUMENTS)
def test_no_difference_means_the_same_id_and_nothing_else_does(
    a: dict[str, Any], b: dict[str, Any]
) -> None:
    assert (diff(a, b) == []) == (manifest_id(a) == manifest_id(b))
    assert {item.path for item in diff(a, b)} == {item.path for item in diff(b, a)}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {1, 2}])
def test_what_json_cannot_say_has_no_canonical_form(value: Any) -> None:
    with pytest.raises(ManifestError, match="not expressible as JSON"):
        canonical_json({"x": value})
