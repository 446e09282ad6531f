"""Whether a well-typed record makes sense: figures follow from samples, no speed for the wrong."""

import sys
from typing import Any, TypeGuard

from k3bench.ledger.errors import LedgerError
from k3bench.ledger.record import FieldError, Record, fail, label_of, parse_fields
from k3bench.ledger.statistics import agrees, summarise

# Published throughputs and medians are both rounded: 1024 tokens in 170 ms beside 6041 tokens/s.
PUBLISHED_ROUNDING = 0.01
# The distance of a time from its roofline, and the bound that it is the multiple of.
TIMES_BOUND, BOUND_S = "roofline.times_bound", "roofline.bound_s"


def valid_record(document: Any, position: int = 0) -> Record:
    """The record of a JSON object that is well-typed and makes sense; LedgerError if it is not.

    ``position`` is its place in the input, for the message.
    """
    try:
        record = parse_fields(document)
        check_sense(record)
    except FieldError as error:
        raise LedgerError(f"{label_of(document, position)}: {error}") from None
    return record


def check_sense(record: Record) -> None:
    """Raise FieldError, naming the field and the mend, unless every rule below holds."""
    _check_provenance(record)
    if record.correctness.status in ("wrong", "failed"):
        _check_no_speed(record)
    elif record.kind == "measured":
        _check_samples(record)
    else:
        _check_stated_figures(record)
    _check_tokens(record)


def _check_provenance(record: Record) -> None:
    if record.kind == "measured":
        for field in ("manifest_id", "commit"):
            if getattr(record, field) is None:
                fail(field, "is null: a measured record says where and what was measured")
        if record.samples_s and record.clock is None:
            fail("clock", "is null beside samples: say wall or device")
        return
    if record.samples_s:
        fail("samples_s", f"must be empty: kind is {record.kind}, not measured")
    if record.kind == "published":
        if record.source is None:
            fail("source", "is null: a published figure says where it comes from")
        if record.manifest_id is not None:
            fail("manifest_id", "must be null: a published figure was not made here")
        if record.figures is not None:
            fail("figures", "must be null: kind is published, its source states what there is")
    else:
        if record.clock is not None:
            fail("clock", f"must be null: nothing was timed, kind is {record.kind}")
        if record.n != 0:
            fail("n", f"must be 0: kind is {record.kind}, nothing was sampled")


def _check_no_speed(record: Record) -> None:
    status = record.correctness.status
    if record.kind == "measured" and record.figures is not None:
        fail("figures", f"must be null: the kernel is {status}, and gets no rates")
    if record.samples_s or record.n:
        fail("samples_s", f"must be empty and n 0: the kernel is {status}")
    for field in ("median_s", "p10_s", "p90_s", "tokens_per_s"):
        if getattr(record, field) is not None:
            fail(field, f"must be null: the kernel is {status}, and gets no speed")


def _check_samples(record: Record) -> None:
    samples = record.samples_s
    if not samples:
        fail("samples_s", "is empty: keep every sample, or set the status to failed")
    if record.n != len(samples):
        fail("n", f"is {record.n}, but there are {len(samples)} samples")
    summary = summarise(samples)
    if (record.p10_s, record.median_s, record.p90_s) != summary:  # as good as always equal
        for field, computed in (
            ("median_s", summary.median),
            ("p10_s", summary.p10),
            ("p90_s", summary.p90),
        ):
            given = getattr(record, field)
            if given is None or not agrees(given, computed):
                fail(field, f"is {given}, but the samples give {computed!r}")
    _check_rates(record, summary.median)
    _check_distance(record)


def _check_rates(record: Record, median: float) -> None:
    """A rate among a measured record's figures is its amount over the median."""
    for name, given in (record.figures or {}).items():
        if not name.endswith("_per_s") or name.startswith("peak_"):
            continue
        amount = (record.figures or {}).get(name.removesuffix("_per_s"))
        if isinstance(given, str) or not isinstance(amount, int | float):
            fail(f"figures.{name}", "is a rate: give the amount it comes from beside it")
        if not agrees(float(given), amount / median):
            fail(f"figures.{name}", f"is {given}, but the median gives {amount / median!r}")


def _check_distance(record: Record) -> None:
    """A stated distance from the bound is the median over that bound."""
    figures = record.figures
    if figures is None or TIMES_BOUND not in figures:
        return
    given, bound_s, median = figures[TIMES_BOUND], figures.get(BOUND_S), record.median_s
    if median is None:
        fail(f"figures.{TIMES_BOUND}", "needs a median_s beside it")
    if not _is_positive(bound_s):
        fail(f"figures.{TIMES_BOUND}", f"needs {BOUND_S} beside it, a positive number of seconds")
    computed = median / bound_s
    if not _is_positive(given) or not agrees(given, computed):
        fail(
            f"figures.{TIMES_BOUND}",
            f"is {given!r}, but median_s over {BOUND_S} is {computed!r}",
        )


def _is_positive(value: object) -> TypeGuard[int | float]:
    """A number above 0 that a float can hold: integers of JSON have no end."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 < value <= sys.float_info.max


def _check_stated_figures(record: Record) -> None:
    _check_distance(record)
    median = record.median_s
    if median is None:
        for field in ("p10_s", "p90_s", "tokens_per_s"):
            if getattr(record, field) is not None:
                fail(field, "needs a median_s beside it")
        return
    if median <= 0.0:
        fail("median_s", "is 0: a time is positive, or null")
    if record.p10_s is not None and record.p10_s > median:
        fail("p10_s", f"is {record.p10_s}, above the median {median}")
    if record.p90_s is not None and record.p90_s < median:
        fail("p90_s", f"is {record.p90_s}, below the median {median}")


def _check_tokens(record: Record) -> None:
    tokens, median = record.tokens, record.median_s
    if record.padded_tokens is not None and tokens is not None and record.padded_tokens < tokens:
        fail("padded_tokens", f"is {record.padded_tokens}, less than tokens {tokens}")
    given = record.tokens_per_s
    if given is None:
        if record.kind == "measured" and tokens is not None and median is not None:
            fail("tokens_per_s", f"is null, but {tokens} tokens took {median} s")
        return
    if tokens is None or median is None:
        fail("tokens_per_s", "needs tokens and median_s beside it")
    computed = tokens / median
    if record.kind == "published":
        right = abs(given - computed) <= PUBLISHED_ROUNDING * computed
    else:
        right = agrees(given, computed)
    if not right:
        fail("tokens_per_s", f"is {given}, but tokens / median_s is {computed!r}")
