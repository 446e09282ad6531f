"""Column types that mean the same on SQLite and PostgreSQL: samples, canonical JSON, UTC times."""

import json
import struct
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import DateTime, Dialect, LargeBinary, Text
from sqlalchemy.types import TypeDecorator

from k3bench.ledger.series import canonical_scalars

FLOAT64_BYTES = 8


def pack_float64(values: tuple[float, ...]) -> bytes:
    """``values`` as consecutive little-endian float64: 8 bytes each, bit-exact, any machine."""
    return struct.pack(f"<{len(values)}d", *values)


def unpack_float64(blob: bytes) -> tuple[float, ...]:
    """The inverse of pack_float64."""
    return struct.unpack(f"<{len(blob) // FLOAT64_BYTES}d", blob)


class Float64Array(TypeDecorator[tuple[float, ...]]):
    """A tuple of floats stored as packed little-endian float64."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: tuple[float, ...] | None, dialect: Dialect) -> bytes | None:
        return None if value is None else pack_float64(value)

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], Any] | None:
        """For SQLite the bytes themselves, which its driver takes without the wrapping."""
        if dialect.name != "sqlite":
            return super().bind_processor(dialect)
        return lambda value: self.process_bind_param(value, dialect)

    def process_result_value(self, value: Any, dialect: Dialect) -> tuple[float, ...] | None:
        return None if value is None else unpack_float64(value)


class CanonicalJson(TypeDecorator[dict[str, Any]]):
    """A JSON object as canonical text, so that equality, grouping and indexes work on it.

    PostgreSQL's json has no equality and jsonb turns 1.0 into 1; the text keeps both.
    """

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: dict[str, Any] | None, dialect: Dialect) -> str | None:
        return None if value is None else canonical_scalars(value)

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], Any]:
        """The text itself: no driver wants it in another form."""
        return lambda value: None if value is None else canonical_scalars(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> dict[str, Any] | None:
        return None if value is None else json.loads(value)


class UtcDateTime(TypeDecorator[datetime]):
    """An aware datetime in UTC. SQLite has no time zones: there it is stored as naive UTC."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a naive datetime: the ledger stores UTC, give tzinfo=UTC")
        utc = value if value.tzinfo is UTC else value.astimezone(UTC)
        return utc.replace(tzinfo=None) if dialect.name == "sqlite" else utc

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], Any]:
        """For SQLite the text itself, as SQLAlchemy writes it but in a quarter of the time."""
        if dialect.name != "sqlite":
            return lambda value: self.process_bind_param(value, dialect)

        # Points that were measured together often have a time in common.
        @lru_cache(maxsize=64)
        def convert(value: datetime | None) -> str | None:
            naive = self.process_bind_param(value, dialect)
            return None if naive is None else naive.isoformat(" ", "microseconds")

        return convert

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
