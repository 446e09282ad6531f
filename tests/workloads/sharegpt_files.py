"""Small ShareGPT-like files with known contents, and a tokenizer of one token a byte."""

import hashlib
import json
from pathlib import Path

import tiktoken

from workloads.identity import ordered_sha256
from workloads.pins import FilePin, StageCounts
from workloads.sharegpt import Expectation
from workloads.statistics import summarise
from workloads.tokenizer import KimiTokenizer, split_pattern


def byte_tokenizer() -> KimiTokenizer:
    """Kimi's split pattern over 256 single-byte ranks: n ASCII characters are n tokens."""
    ranks = {bytes([value]): value for value in range(256)}
    return KimiTokenizer(
        tiktoken.Encoding(
            "bytes", pat_str=split_pattern(), mergeable_ranks=ranks, special_tokens={}
        ),
        identity="one token a byte",
    )


def record(*turns: tuple[str, int]) -> dict[str, object]:
    """A conversation of (role, number of one-byte tokens) turns."""
    return {
        "id": "x",
        "conversations": [{"from": role, "value": "a" * tokens} for role, tokens in turns],
    }


# One of each kind; the comment says what becomes of it.
RECORDS = [
    record(("human", 10), ("gpt", 20)),  # kept
    record(),  # no turns
    record(("human", 10)),  # one turn
    record(("gpt", 10), ("human", 20), ("gpt", 30)),  # starts with gpt
    record(("system", 10), ("human", 20), ("gpt", 5)),  # starts with neither
    record(("human", 9), ("human", 20)),  # two humans
    record(("human", 3), ("gpt", 20)),  # prompt one token short
    record(("human", 4), ("gpt", 4)),  # kept: both at their lowest
    record(("human", 4), ("gpt", 3)),  # output one token short
    record(("human", 1024), ("gpt", 1024)),  # kept: prompt and total at their highest
    record(("human", 1024), ("gpt", 1025)),  # total one too many
    record(("human", 1025), ("gpt", 10)),  # prompt one too many
    record(("human", 100), ("gpt", 200), ("human", 5), ("gpt", 5)),  # kept: later turns ignored
]
COUNTS = StageCounts(records=13, two_turns=11, human_then_gpt=8, length_filtered=4, gpt_first=1)
PROMPTS = (10, 4, 1024, 100)
OUTPUTS = (20, 4, 1024, 200)


def write(path: Path, records: object = None) -> Path:
    """A JSON file of ``records`` (default: ``RECORDS``)."""
    path.write_text(json.dumps(RECORDS if records is None else records), encoding="utf-8")
    return path


def pin_of(path: Path) -> FilePin:
    """A pin that ``path`` meets."""
    content = path.read_bytes()
    return FilePin(
        repo_id="example/sharegpt-like",
        repo_type="dataset",
        filename=path.name,
        revision="0123456789abcdef0123456789abcdef01234567",
        size_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )


def expectation(path: Path) -> Expectation:
    """What ``RECORDS`` in ``path`` must give."""
    return Expectation(
        file=pin_of(path),
        counts=COUNTS,
        statistics=summarise(PROMPTS),
        lengths_in_file_order_sha256=ordered_sha256(PROMPTS),
    )


def spread_lengths(count: int) -> list[int]:
    """Lengths from 1 to 900 in a fixed scrambled order, for imports that are not the pinned one."""
    return [1 + (index * 7919) % 900 for index in range(count)]


def one_number_changed(lengths: list[int]) -> list[int]:
    """A list that agrees with ``lengths`` in every published statistic and is not it.

    One length moves by one, far from a bucket edge and from every percentile: no count changes, and
    the mean moves in the fifth decimal.
    """
    place = next(i for i, length in enumerate(lengths) if 650 <= length <= 850)
    changed = list(lengths)
    changed[place] += 1
    return changed
