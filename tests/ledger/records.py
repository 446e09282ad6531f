"""Records made to order: valid ones with figures that follow from samples, and strategies."""

import os
import string
import uuid
from typing import Any

from hypothesis import strategies as st

from k3bench.ledger.statistics import summarise

WORKLOAD = {"id": "kda-grid/S64_B4", "sha256": "a" * 64}
COMMIT = "0123456789abcdef0123456789abcdef01234567"

Record = dict[str, Any]


def figures(samples_s: tuple[float, ...], tokens: int | None) -> Record:
    """The keys of a record that follow from its samples and tokens."""
    summary = summarise(samples_s) if samples_s else None
    return {
        "samples_s": list(samples_s),
        "median_s": summary and summary.median,
        "p10_s": summary and summary.p10,
        "p90_s": summary and summary.p90,
        "n": len(samples_s),
        "tokens": tokens,
        "padded_tokens": tokens,
        "tokens_per_s": tokens / summary.median if summary and tokens is not None else None,
    }


def measured(
    manifest_id: str,
    /,
    samples_s: tuple[float, ...] = (0.003, 0.001, 0.002),
    tokens: int | None = 256,
    **changes: Any,
) -> Record:
    """A valid measured record; ``changes`` replace whole keys."""
    record = {
        "id": uuid.UUID(bytes=os.urandom(16)).hex,
        "benchmark": "kda_prefill.FixedGrid.device_prefill",
        "parameters": {"seqlen": 64, "batch": 4},
        "implementation": "chunked_xla",
        "kind": "measured",
        "device": "cpu",
        "clock": "wall",
        "preset": "smoke",
        "warmup": 2,
        "compile_s": 0.5,
        "correctness": {
            "status": "ok",
            "max_abs_error": 1e-4,
            "tolerance": 5e-4,
            "reference": "fp32 recurrence",
            "detail": None,
        },
        "workload": dict(WORKLOAD),
        "manifest_id": manifest_id,
        "commit": COMMIT,
        "started_at": "2026-08-01T12:00:00+00:00",
        "run_id": "run-1",
        "source": None,
        "figures": None,
        **figures(samples_s, tokens),
    }
    return {**record, **changes}


def wrong(status: str = "wrong") -> Record:
    """What replaces the figures of a record whose kernel is wrong."""
    return {
        **dict.fromkeys(("median_s", "p10_s", "p90_s", "tokens_per_s")),
        "samples_s": [],
        "n": 0,
        "correctness": {
            "status": status,
            "max_abs_error": 0.3,
            "tolerance": 5e-4,
            "reference": None,
            "detail": None,
        },
    }


def unmeasured(kind: str) -> Record:
    """What turns a measured record into one of another kind, with a stated median."""
    return {
        "kind": kind,
        "clock": None,
        "samples_s": [],
        "n": 0,
        "p10_s": None,
        "p90_s": None,
        "manifest_id": None,
        "run_id": None,
        "source": "somebody's report" if kind == "published" else None,
    }


_text = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=30
)
_seconds = st.floats(min_value=1e-7, max_value=1e4)
_finite = st.floats(min_value=0, max_value=1e300, allow_subnormal=False)
_scalars = st.one_of(
    st.text(max_size=20),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
)
_hex = st.text(string.digits + "abcdef", min_size=32, max_size=32)
_times = st.datetimes().map(lambda moment: moment.isoformat() + "+00:00")


@st.composite
def any_record(draw: st.DrawFn, manifest_id: str) -> Record:
    """Any valid record with a commit, of any kind and correctness."""
    samples = tuple(draw(st.lists(_seconds, min_size=1, max_size=40)))
    tokens = draw(st.none() | st.integers(min_value=0, max_value=2**40))
    record = measured(
        manifest_id,
        samples,
        tokens,
        id=draw(_hex),
        benchmark=draw(_text),
        parameters=draw(st.dictionaries(st.text(max_size=10), _scalars, max_size=4)),
        implementation=draw(_text),
        device=draw(_text),
        clock=draw(st.sampled_from(["wall", "device"])),
        preset=draw(st.sampled_from([None, "smoke", "ladder", "device", "quick"])),
        warmup=draw(st.none() | st.integers(min_value=0, max_value=2**63 - 1)),
        compile_s=draw(st.none() | _finite),
        correctness={
            "status": draw(st.sampled_from(["ok", "not_checked"])),
            "max_abs_error": draw(st.none() | _finite),
            "tolerance": draw(st.none() | _finite),
            "reference": draw(st.none() | _text),
            "detail": draw(st.none() | _text),
        },
        workload={"id": draw(_text), "sha256": draw(_hex) * 2},
        started_at=draw(_times),
        run_id=draw(st.none() | _text),
        source=draw(st.none() | _text),
    )
    kind = draw(st.sampled_from(["measured", "compiled", "modelled", "published"]))
    if kind != "measured":
        record |= unmeasured(kind)
    if kind in ("compiled", "modelled"):
        record["figures"] = draw(st.none() | st.dictionaries(_text, _scalars, max_size=4))
    if draw(st.booleans()):
        record |= wrong(draw(st.sampled_from(["wrong", "failed"])))
    return record
