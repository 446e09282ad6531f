"""The text of a record's parameters is kept between records, and stays one text per content."""

import pytest

from k3bench.canonical import canonical_json
from k3bench.ledger.series import canonical_scalars

ALIKE = [
    {"a": 1}, {"a": True}, {"a": 1.0}, {"a": "1"}, {"a": 0}, {"a": False}, {"a": 0.0}, {"a": -0.0},
    {"a": 1, "b": True}, {"a": True, "b": 1}, {"b": True, "a": 1}, {"a": 2**70}, {"a": ""}, {},
]  # fmt: skip


@pytest.mark.parametrize("round_number", [1, 2])
def test_kept_texts_are_the_canonical_ones_whatever_came_before(round_number: int) -> None:
    for values in ALIKE[:: 1 if round_number == 1 else -1]:
        assert canonical_scalars(values) == canonical_json(values)


def test_a_number_that_is_no_json_is_refused_each_time() -> None:
    for _ in range(2):
        with pytest.raises(ValueError, match="Out of range"):
            canonical_scalars({"a": float("nan")})
