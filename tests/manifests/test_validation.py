"""The schema: a captured manifest passes, a changed one is refused by the name of its field."""

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import manifests
from manifests import ManifestError, capture, validate

SCHEMA = json.loads(Path(manifests.__file__).with_name("schema.json").read_text())


@pytest.fixture(scope="module")
def manifest() -> dict[str, Any]:
    return capture(Path(__file__).parent, {"kda-headline": "ab" * 32})


def test_the_schema_is_itself_valid_draft_2020_12() -> None:
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_every_object_of_the_schema_is_closed_and_requires_its_fields() -> None:
    def walk(node: Any, path: str) -> None:
        if isinstance(node, dict):
            if node.get("type") == "object":
                assert "additionalProperties" in node, path
                if node["additionalProperties"] is False:
                    assert node["required"] == list(node["properties"]), path
            for key, inner in node.items():
                walk(inner, f"{path}.{key}")

    walk(SCHEMA, "schema")


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("schema_version", 99, "schema_version is 99, this code reads 1"),
        ("schema_version", True, "schema_version is True"),
        ("environment.cpu.cores", "two", "environment.cpu.cores: 'two' is not of type"),
        ("environment.cpu.cores", -1, "environment.cpu.cores: -1 is less than the minimum"),
        ("environment.limits.cpu_cores", "lots", "environment.limits.cpu_cores"),
        ("environment.cpu.flags_sha256", "abc", "environment.cpu.flags_sha256"),
        ("environment.variables.LD_PRELOAD", "/x/y.so", "LD_PRELOAD: '/x/y.so' is an absolute"),
        ("environment.host.os", "/etc", "environment.host.os: '/etc' is an absolute path"),
        ("environment.secret", 1, "environment: Additional properties are not allowed"),
        ("source.commit", "HEAD", "source.commit"),
        ("source.problem", "tired", "source.problem"),
        ("source.workload_pins.kda-headline", "", "source.workload_pins.kda-headline"),
        ("state.captured_at", "yesterday", "state.captured_at"),
        ("state.load.load_1min", float("nan"), "not expressible as JSON"),
    ],
)
def test_a_wrong_field_is_named(
    manifest: dict[str, Any], path: str, value: Any, message: str
) -> None:
    wrong = copy.deepcopy(manifest)
    inner = wrong
    *parents, last = path.split(".")
    for step in parents:
        inner = inner[step]
    inner[last] = value
    with pytest.raises(ManifestError) as caught:
        validate(wrong)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_field_is_named(manifest: dict[str, Any]) -> None:
    wrong = copy.deepcopy(manifest)
    del wrong["environment"]["affinity"]
    with pytest.raises(ManifestError, match="environment: 'affinity' is a required property"):
        validate(wrong)


@pytest.mark.parametrize("document", [None, [], "text", 3, {}])
def test_what_is_no_manifest_at_all_is_refused_with_the_mend(document: Any) -> None:
    with pytest.raises(ManifestError, match="python -m manifests capture"):
        validate(document)
