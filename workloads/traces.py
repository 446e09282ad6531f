"""Public length traces: the columns of each format, read as prompt and output lengths in order.

Azure LLM inference 2023 (TIMESTAMP,ContextTokens,GeneratedTokens), Mooncake (one JSON object a
line with input_length and output_length; hash_ids, the shared prefixes, are not modelled: every
prompt is prefilled whole), BurstGPT (Timestamp, Model, Request tokens, Response tokens, ...; a
failed request has no response tokens and keeps its prompt).
"""

import json
from collections.abc import Callable
from pathlib import Path

from workloads.errors import MalformedInputError
from workloads.readers import csv_columns, whole_number

# (prompt column, output column) of the formats that are CSV.
CSV_COLUMNS: dict[str, tuple[str, str]] = {
    "azure": ("ContextTokens", "GeneratedTokens"),
    "burstgpt": ("Request tokens", "Response tokens"),
}
_MOONCAKE_KEYS = ("input_length", "output_length")

Lengths = tuple[list[int], list[int]]


def looks_like_mooncake(text: str) -> bool:
    """Whether the first line is a JSON object with Mooncake's keys."""
    try:
        first = json.loads(text.lstrip().partition("\n")[0])
    except ValueError:
        return False
    return isinstance(first, dict) and all(key in first for key in _MOONCAKE_KEYS)


def _read_csv(form: str) -> Callable[[Path, str], Lengths]:
    def read(path: Path, text: str) -> Lengths:
        prompts, outputs = [], []
        for line, (prompt, output) in csv_columns(path, text, CSV_COLUMNS[form]):
            prompts.append(whole_number(prompt, f"{path}, line {line}", least=1))
            outputs.append(whole_number(output, f"{path}, line {line}", least=0))
        return prompts, outputs

    return read


def _read_mooncake(path: Path, text: str) -> Lengths:
    prompts: list[int] = []
    outputs: list[int] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            request = json.loads(line)
        except ValueError as error:
            raise MalformedInputError(f"{where}: not a JSON object ({error})") from error
        for key, least, into in zip(_MOONCAKE_KEYS, (1, 0), (prompts, outputs), strict=True):
            value = request.get(key) if isinstance(request, dict) else None
            if not isinstance(value, int):
                raise MalformedInputError(f"{where}: no whole number {key!r}")
            into.append(whole_number(value, f"{where}, {key}", least))
    return prompts, outputs


READERS: dict[str, Callable[[Path, str], Lengths]] = {
    "azure": _read_csv("azure"),
    "burstgpt": _read_csv("burstgpt"),
    "mooncake": _read_mooncake,
}
