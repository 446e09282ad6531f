"""Which machine and which asv environment a manifest was captured in, in asv's own terms."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from k3bench.measure.protocol import DEFAULT_PRESET, PRESET_VARIABLE


@dataclass(frozen=True)
class Place:
    """Where results belong: one directory, and one part of a file's name."""

    host: str
    python: str
    preset: str

    @property
    def environment(self) -> str:
        """asv's name of the ``provisioned`` environment."""
        from asv.environment import get_env_name

        tagged = {("nobuild", PRESET_VARIABLE): self.preset}
        return str(get_env_name("provisioned", self.python, {}, tagged))


def place_of(manifest: Mapping[str, Any]) -> Place:
    """The place that a manifest describes."""
    environment = manifest["environment"]
    version = str(environment["python"]["version"]).split(".")
    settings = manifest["state"].get("settings") or {}
    return Place(
        host=str(environment["host"]["name"]),
        python=".".join(version[:2]),
        preset=str(settings.get(PRESET_VARIABLE) or DEFAULT_PRESET),
    )


def machine_of(manifest: Mapping[str, Any], name: str) -> dict[str, str]:
    """asv's machine.json for a manifest's host; asv's own has the memory in bytes."""
    environment = manifest["environment"]
    host, cpu = environment["host"], environment["cpu"]
    return {
        "arch": str(host["architecture"]),
        "cpu": str(cpu["model"]),
        "machine": name,
        "num_cpu": str(cpu["threads"]),
        "os": f"{host['system']} {host['kernel']}",
        "ram": f"{environment['memory']['total_gib']} GiB",
    }
