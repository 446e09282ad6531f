"""Reading length lists from files: which format a file is in, and what it holds.

Formats: ``lengths`` (JSON list, JSON object with "lengths", or CSV), ``pairs`` (CSV of prompt and
output tokens before the length filter), and the traces of traces.py. Lengths are whole numbers of
at least one token; anything else is an error that names the place.
"""

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from workloads import pins
from workloads.errors import MalformedInputError, MissingInputError, WorkloadError

# Names of the one column that a CSV of lengths needs, lower case.
LENGTH_COLUMNS = ("prompt_tokens", "input_tokens", "prompt_len", "input_len", "length", "lengths")
FORMS = ("lengths", "pairs", "azure", "mooncake", "burstgpt")

_MAX_LENGTH = 2**31 - 1
# A list of lengths is small; a file past this is something else, mostly the dataset itself.
_MAX_FILE_BYTES = 512 * 2**20


@dataclass(frozen=True)
class LengthList:
    """What a file holds: prompt lengths and, where it has them, output lengths (tokens), in order.

    ``dropped`` counts the pairs that the length filter removed (``pairs`` only).
    """

    form: str
    lengths: tuple[int, ...]
    output_lengths: tuple[int, ...] = ()
    dropped: int = 0


def read(path: Path, form: str = "auto") -> LengthList:
    """Read a file of lengths in one of ``FORMS``, or find out which (``auto``).

    Raises ``MissingInputError``, ``MalformedInputError`` (with line or index), or ``WorkloadError``
    for an unknown form.
    """
    from workloads import traces

    if form not in (*FORMS, "auto"):
        raise WorkloadError(f"format {form!r} is unknown: use one of auto, {', '.join(FORMS)}")
    text = _text(path)
    if form == "auto":
        form = detect(path, text)
    if form == "lengths":
        found = LengthList(form, tuple(_lengths(path, text)))
    elif form == "pairs":
        found = _pairs(path, text)
    else:
        prompts, outputs = traces.READERS[form](path, text)
        found = LengthList(form, tuple(prompts), tuple(outputs))
    if not found.lengths:
        raise MalformedInputError(f"{path} holds no lengths")
    return found


def detect(path: Path, text: str) -> str:
    """The format of a file, by its first line."""
    from workloads import traces

    head = text.lstrip()[:1]
    if head == "[":
        return "lengths"
    if head == "{":
        return "mooncake" if traces.looks_like_mooncake(text) else "lengths"
    header = [name.lower() for name in next(csv_rows(path, text), (0, [""]))[1]]
    for trace_form, columns in traces.CSV_COLUMNS.items():
        if all(column.lower() in header for column in columns):
            return trace_form
    if {"prompt_tokens", "output_tokens"} <= set(header):
        return "pairs"
    return "lengths"


def csv_rows(path: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    """(line number, stripped fields) of every line that is not blank."""
    reader = csv.reader(text.splitlines(), strict=True)
    try:
        for row in reader:
            fields = [field.strip() for field in row]
            if any(fields):
                yield reader.line_num, fields
    except csv.Error as error:
        raise MalformedInputError(f"{path}, line {reader.line_num}: {error}") from error


def csv_columns(path: Path, text: str, columns: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """(line number, fields of ``columns``) of a CSV with a header; names match in any case."""
    rows = csv_rows(path, text)
    _, header = next(rows, (0, []))
    places = []
    lowered = [name.lower() for name in header]
    for column in columns:
        if column.lower() not in lowered:
            raise MalformedInputError(
                f"{path}: the header has no column {column!r}; it has: {', '.join(header)}"
            )
        places.append(lowered.index(column.lower()))
    for number, fields in rows:
        if len(fields) != len(header):
            raise MalformedInputError(
                f"{path}, line {number}: {len(fields)} fields, the header has {len(header)}"
            )
        yield number, [fields[place] for place in places]


def whole_number(value: object, where: str, least: int) -> int:
    """``value`` (an int, or digits) as a number of tokens of at least ``least``."""
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise MalformedInputError(f"{where}: {value!r} is not a whole number of tokens")
    if not least <= value <= _MAX_LENGTH:
        raise MalformedInputError(f"{where}: {value} tokens; at least {least} are expected")
    return value


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise MalformedInputError(
                f"{path} has over {_MAX_FILE_BYTES >> 20} MiB, too much for a list of lengths; "
                "if it is the dataset: k3bench workloads build --dataset FILE"
            )
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise MissingInputError(f"{path} is not there: give a JSON, JSONL or CSV file") from None
    except IsADirectoryError:
        raise MissingInputError(f"{path} is a directory: give a JSON, JSONL or CSV file") from None
    except UnicodeDecodeError as error:
        raise MalformedInputError(f"{path} is not UTF-8 text (byte {error.start})") from error


def _lengths(path: Path, text: str) -> Iterator[int]:
    if text.lstrip()[:1] in ("[", "{"):
        yield from _json_lengths(path, text)
        return
    rows = csv_rows(path, text)
    number, first = next(rows, (0, [""]))
    if len(first) == 1 and first[0].isdigit():
        for line, fields in [(number, first), *rows]:
            if len(fields) != 1:
                raise MalformedInputError(f"{path}, line {line}: more than one column")
            yield whole_number(fields[0], f"{path}, line {line}", least=1)
        return
    header = [name.lower() for name in first]
    column = next((name for name in LENGTH_COLUMNS if name in header), None)
    if column is None:
        raise MalformedInputError(
            f"{path} is no CSV of lengths: give one column of numbers, or a header with one of "
            f"{', '.join(LENGTH_COLUMNS)}"
        )
    for line, (field,) in csv_columns(path, text, [column]):
        yield whole_number(field, f"{path}, line {line}", least=1)


def _json_lengths(path: Path, text: str) -> Iterator[int]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MalformedInputError(f"{path} is not whole JSON ({error})") from error
    values = document.get("lengths") if isinstance(document, dict) else document
    if not isinstance(values, list):
        raise MalformedInputError(f'{path} is neither a JSON list nor an object with "lengths"')
    for index, value in enumerate(values):
        if isinstance(value, str):
            raise MalformedInputError(f"{path}, lengths[{index}]: {value!r} is text, not a number")
        yield whole_number(value, f"{path}, lengths[{index}]", least=1)


def _pairs(path: Path, text: str) -> LengthList:
    """Prompt and output tokens of records before the length filter, which is applied here."""
    kept = []
    total = 0
    for line, (prompt, output) in csv_columns(path, text, ["prompt_tokens", "output_tokens"]):
        where = f"{path}, line {line}"
        pair = whole_number(prompt, where, least=0), whole_number(output, where, least=0)
        total += 1
        if pins.LENGTH_FILTER.keeps(*pair):
            kept.append(pair)
    return LengthList(
        "pairs",
        tuple(prompt for prompt, _ in kept),
        tuple(output for _, output in kept),
        dropped=total - len(kept),
    )
