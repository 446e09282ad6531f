"""What results of both compilers have in common: JSON in and out, and a fingerprint."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from hashlib import sha256
from typing import Any, Self

from k3bench.canonical import canonical_json
from k3bench.compiled.errors import CompiledFormatError


@dataclass(frozen=True)
class ResultDocument:
    """A point's figures; whatever a compiler adds are fields of plain JSON types.

    Of those ``kernels`` is read here, and ``compile_s`` is the only one that is not deterministic.
    """

    status: str
    point: Mapping[str, Any]
    target: str
    device: str

    @property
    def fingerprint(self) -> str:
        """SHA-256 of all that is deterministic: equal in two fresh processes."""
        deterministic = {key: value for key, value in self._plain().items() if key != "compile_s"}
        return sha256(canonical_json(deterministic).encode()).hexdigest()

    @property
    def implementation(self) -> str:
        """The point's implementation."""
        return str(self.point["implementation"])

    def _plain(self) -> dict[str, Any]:
        values = asdict(self)
        return {**values, "kernels": [dict(kernel) for kernel in values["kernels"]]}

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types, the fingerprint included; ``from_json`` is the inverse."""
        return {**self._plain(), "fingerprint": self.fingerprint}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """The result that ``to_json`` wrote.

        Raises CompiledFormatError where keys differ or the fingerprint does not belong to it.
        """
        known = {entry.name for entry in fields(cls)}
        if document.keys() != known | {"fingerprint"}:
            odd = sorted(document.keys() ^ (known | {"fingerprint"}))
            raise CompiledFormatError(f"a compiled result with other keys: {', '.join(odd)}")
        values = {key: document[key] for key in known}
        result = cls(**{**values, "kernels": tuple(values["kernels"])})
        if result.fingerprint != document["fingerprint"]:
            raise CompiledFormatError("a compiled result whose fingerprint is not its own")
        return result
