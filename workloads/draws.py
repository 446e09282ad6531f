"""The replayed lists: for each batch size, 100 lengths drawn with replacement, one a batch.

"Seed 0" names no generator, so the drawn lists themselves are pinned. The draw is nevertheless
reproducible: one PCG64 stream, seed 0, over the batch sizes in order (reseeding per batch size
would make all seven lists equal), each index by Lemire's multiply-shift with rejection on 32-bit
halves of the raw words, low half first. On the real lengths in file order this reproduces the seven
lists behind the published TPU v6e replay, number for number. NumPy promises that a bit generator's
raw words never change but not that ``Generator.choice`` does not: hence the index step here.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from workloads import pins
from workloads.committed import committed_bytes
from workloads.errors import MalformedInputError, WorkloadError
from workloads.identity import ordered_sha256
from workloads.padding import EXECUTED_MULTIPLES, padded_length

REAL_FILE = "draws_sharegpt_k3.json"
SURROGATE_FILE = "draws_sharegpt_k3_surrogate.json"
REAL_LABEL = "ShareGPT-derived"

GENERATOR = (
    "PCG64 seed 0, one stream over all batch sizes in order; index by Lemire's bounded "
    "multiply-shift on 32-bit halves, low half first"
)


@dataclass(frozen=True)
class DrawnLists:
    """Seven lists of sampled lengths (tokens), and where they were drawn from.

    ``lists`` maps the batch size to its lengths; a batch holds that many equal sequences.
    ``population_sha256`` is over the lengths in the order that the draw indexed.
    """

    label: str
    population_sha256: str
    population_count: int
    lists: Mapping[int, tuple[int, ...]]


def _halves(seed: int) -> Iterator[int]:
    from numpy.random import PCG64

    words = PCG64(seed)
    while True:
        word = int(words.random_raw())
        yield word & 0xFFFFFFFF
        yield word >> 32


def _indices(halves: Iterator[int], bound: int) -> Iterator[int]:
    """Unbiased integers in 0..bound-1 (Lemire 2019), from uniform 32-bit integers."""
    if not 1 < bound < 2**32:
        raise WorkloadError(f"cannot draw from {bound} lengths: give 2 to 4,294,967,295")
    reject_below = 2**32 % bound
    for half in halves:
        product = half * bound
        if product & 0xFFFFFFFF >= reject_below:
            yield product >> 32


def draw(lengths: Sequence[int], label: str) -> DrawnLists:
    """Draw the seven lists from ``lengths`` (tokens), whose order matters: the draw indexes it."""
    indices = _indices(_halves(pins.DRAW_SEED), len(lengths))
    return DrawnLists(
        label=label,
        population_sha256=ordered_sha256(lengths),
        population_count=len(lengths),
        lists={
            batch: tuple(lengths[next(indices)] for _ in range(pins.DRAWS_PER_BATCH_SIZE))
            for batch in pins.DRAW_BATCH_SIZES
        },
    )


def render(drawn: DrawnLists) -> bytes:
    """The file form: JSON, one list a line, sampled lengths beside the executed ones."""

    def line(lengths: Sequence[int]) -> str:
        return "[" + ",".join(str(length) for length in lengths) + "]"

    entries = []
    for batch, sampled in drawn.lists.items():
        rows = [f'   "sampled": {line(sampled)}']
        for multiple in EXECUTED_MULTIPLES:
            executed = [padded_length(length, multiple) for length in sampled]
            rows.append(f'   "executed_{multiple}": {line(executed)}')
        entries.append(f'  "{batch}": {{\n' + ",\n".join(rows) + "\n  }")
    head = {
        "label": drawn.label,
        "generator": GENERATOR,
        "population_count": drawn.population_count,
        "population_sha256": drawn.population_sha256,
    }
    fields = [f' "{key}": {json.dumps(value)}' for key, value in head.items()]
    fields.append(' "lists": {\n' + ",\n".join(entries) + "\n }")
    return ("{\n" + ",\n".join(fields) + "\n}\n").encode("ascii")


def parse(content: bytes, where: str) -> DrawnLists:
    """The lists from their file form; ``where`` names the file in an error."""
    try:
        document = json.loads(content)
        drawn = DrawnLists(
            label=document["label"],
            population_sha256=document["population_sha256"],
            population_count=document["population_count"],
            lists={
                int(batch): tuple(entry["sampled"]) for batch, entry in document["lists"].items()
            },
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MalformedInputError(
            f"{where} is not a file of drawn lists ({type(error).__name__}: {error}); "
            "rebuild it with: k3bench workloads build"
        ) from error
    if render(drawn) != content:
        raise MalformedInputError(
            f"{where} is not in the form that draws.py writes (executed lengths or layout differ); "
            "rebuild it with: k3bench workloads build"
        )
    return drawn


def load_committed(name: str) -> DrawnLists:
    """Drawn lists committed under workloads/data/, their bytes checked against the pinned hash.

    ``name`` is ``REAL_FILE`` or ``SURROGATE_FILE``.
    """
    return parse(committed_bytes(name), f"workloads/data/{name}")
