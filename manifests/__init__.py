"""Manifests: where a measurement was made. Capture, validate, name by content, compare.

manifest = capture(project_root)       # a JSON-able dict, valid by schema.json
manifest_id(manifest)                  # SHA-256 of all of it
fingerprint(manifest)                  # SHA-256 of what decides about comparability
comparable(manifest, other)            # (may timings be compared?, every difference)
"""

from manifests.canonical import canonical_json
from manifests.capture import Manifest, capture
from manifests.comparability import ABSENT, Difference, comparable, diff
from manifests.errors import ManifestError
from manifests.identity import fingerprint, manifest_id
from manifests.validation import SCHEMA_VERSION, validate

__all__ = [
    "ABSENT",
    "SCHEMA_VERSION",
    "Difference",
    "Manifest",
    "ManifestError",
    "canonical_json",
    "capture",
    "comparable",
    "diff",
    "fingerprint",
    "manifest_id",
    "validate",
]
