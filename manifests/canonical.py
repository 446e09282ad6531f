"""One spelling for every JSON value, so that equal values have equal bytes and equal digests."""

from __future__ import annotations

import json
from typing import Any

from manifests.errors import ManifestError


def canonical_json(value: Any) -> str:
    """JSON with sorted keys, no blanks and ASCII only.

    Raises ManifestError for what JSON cannot say (NaN, infinities, foreign types).
    """
    try:
        return json.dumps(
            value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
        )
    except (TypeError, ValueError) as error:
        raise ManifestError(f"manifest: not expressible as JSON ({error})") from None
