"""One text per JSON value: what is hashed for fingerprints and compared for sameness."""

import json
from typing import Any

# One encoder for all calls: json.dumps would build one each time, half the cost of a small value.
_ENCODER = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
)


def canonical_json(value: Any) -> str:
    """``value`` with sorted keys, no white space, ASCII only: equal texts, equal values.

    1, 1.0 and True have different texts. Raises ValueError for NaN and infinity, TypeError for what
    is no JSON.
    """
    return _ENCODER.encode(value)
