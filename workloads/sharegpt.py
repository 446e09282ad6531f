"""The ShareGPT-derived recipe: from the dataset's JSON to prompt lengths, counted at every stage.

records -> at least two turns -> the first two exactly human then gpt -> prompt and output tokens
(first human value and first gpt value, no chat template) -> vLLM's length filter.

The JSON is streamed (ijson) into an Arrow-backed ``datasets.Dataset``; each stage is a cached map
or filter under a fingerprint made of the file's SHA-256 and the recipe, so that a run that was
interrupted goes on where it stopped and a changed file or recipe starts anew.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from workloads import pins
from workloads.download import Progress, check_file, no_progress
from workloads.errors import MalformedInputError, MissingInputError, PinMismatchError, WorkloadError
from workloads.model import sha256_json
from workloads.pins import FilePin, LengthFilter, StageCounts
from workloads.statistics import compare, summarise
from workloads.store import sha256_file, workloads_directory
from workloads.tokenizer import KimiTokenizer

if TYPE_CHECKING:
    from datasets import Dataset

# Part of every cache fingerprint: raise it when a stage changes what it computes.
RECIPE_VERSION = 1
HUMAN, ASSISTANT = "human", "gpt"
_BATCH_RECORDS = 1000


@dataclass(frozen=True)
class Expectation:
    """What a pinned file must give: its bytes, the count of every stage, the statistics."""

    file: FilePin
    counts: StageCounts
    statistics: pins.Statistics
    lengths_in_file_order_sha256: str


PINNED = Expectation(
    file=pins.DATASET,
    counts=pins.STAGE_COUNTS,
    statistics=pins.STATISTICS,
    lengths_in_file_order_sha256=pins.LENGTHS_IN_FILE_ORDER_SHA256,
)


@dataclass(frozen=True)
class ShareGptLengths:
    """What the recipe made of a file.

    ``prompt_tokens[i]`` and ``output_tokens[i]`` are of the i-th kept record, in file order.
    """

    file_sha256: str
    counts: StageCounts
    prompt_tokens: tuple[int, ...]
    output_tokens: tuple[int, ...]


def run(
    path: Path,
    tokenizer: KimiTokenizer,
    *,
    expect: Expectation | None = PINNED,
    length_filter: LengthFilter = pins.LENGTH_FILTER,
    cache: Path | None = None,
    progress: Progress = no_progress,
) -> ShareGptLengths:
    """Run the recipe on a local dataset file.

    With ``expect`` (the default: the pinned file) every stage is asserted as soon as its count is
    known and ``PinMismatchError`` names the first that differs. ``expect=None`` asserts nothing and
    is for other files. ``MalformedInputError`` names the record of a broken file.
    """
    if not path.is_file():
        raise MissingInputError(f"{path} is not there: it should be the ShareGPT JSON file")
    if expect is not None:
        check_file(path, expect.file, progress)
        file_sha256 = expect.file.sha256
    else:
        file_sha256 = sha256_file(path)
    stages = _Stages(
        file_sha256=file_sha256,
        cache=cache or workloads_directory() / "datasets",
        expect=expect.counts if expect else None,
        progress=progress,
    )
    records = stages.read(path)
    two_turns = stages.keep("two_turns", records, ["turns"], lambda turns: turns >= 2)
    stages.keep("gpt_first", two_turns, ["roles"], lambda roles: roles == _roles(ASSISTANT, HUMAN))
    pairs = stages.keep(
        "human_then_gpt", two_turns, ["roles"], lambda roles: roles == _roles(HUMAN, ASSISTANT)
    )
    tokenised = stages.tokenise(pairs, tokenizer)
    kept = stages.keep(
        "length_filtered",
        tokenised,
        ["prompt_tokens", "output_tokens"],
        length_filter.keeps,
        ranks=tokenizer.identity,
        bounds=asdict(length_filter),
    )
    # One slice of all rows: a column of a filtered dataset is read row by row, for seconds.
    lengths = kept[:]
    result = ShareGptLengths(
        file_sha256=file_sha256,
        counts=StageCounts(**stages.counts),
        prompt_tokens=tuple(lengths["prompt_tokens"]),
        output_tokens=tuple(lengths["output_tokens"]),
    )
    if expect is not None:
        _assert_lengths(result, expect)
    return result


def _assert_lengths(result: ShareGptLengths, expect: Expectation) -> None:
    differences = compare(summarise(result.prompt_tokens, expect.statistics), expect.statistics)
    if differences:
        raise PinMismatchError(
            "the prompt lengths differ from the pinned ones: " + "; ".join(differences)
        )
    found = sha256_json(list(result.prompt_tokens))
    if found != expect.lengths_in_file_order_sha256:
        raise PinMismatchError(
            f"the prompt lengths agree in every statistic and have SHA-256 {found}, pinned "
            f"{expect.lengths_in_file_order_sha256}: the tokenizer or the recipe has changed"
        )


def _roles(first: str, second: str) -> str:
    return f"{first}>{second}"


class _Stages:
    """Runs the cached stages and asserts each count against the expected one."""

    def __init__(
        self, file_sha256: str, cache: Path, expect: StageCounts | None, progress: Progress
    ) -> None:
        self.file_sha256 = file_sha256
        self.cache = cache
        self.expect = asdict(expect) if expect else None
        self.progress = progress
        self.counts: dict[str, int] = {}

    def count(self, stage: str, found: int) -> None:
        self.counts[stage] = found
        if self.expect is not None and found != self.expect[stage]:
            raise PinMismatchError(
                f"stage {stage} of the ShareGPT recipe has {found:,} records, pinned "
                f"{self.expect[stage]:,}: the recipe has changed, or the cached stages in "
                f"{self.cache} are damaged (delete them)"
            )

    def fingerprint(self, stage: str, **settings: object) -> str:
        # Said by us: hashing closures would tie the cache to the state of the progress display.
        return sha256_json(
            {"file": self.file_sha256, "recipe": RECIPE_VERSION, "stage": stage, **settings}
        )[:32]

    def read(self, path: Path) -> "Dataset":
        from datasets import Dataset, Features, Value
        from datasets.exceptions import DatasetGenerationError

        features = Features(
            {
                "turns": Value("int64"),
                "roles": Value("string"),
                "prompt": Value("string"),
                "output": Value("string"),
            }
        )
        try:
            with _quiet_datasets():
                records = Dataset.from_generator(
                    _rows,
                    features=features,
                    cache_dir=str(self.cache),
                    gen_kwargs={"path": path, "progress": self.progress},
                    fingerprint=self.fingerprint("records"),
                )
        except DatasetGenerationError as error:
            cause = error.__cause__
            if isinstance(cause, WorkloadError | OSError):
                raise cause from None
            raise
        self.count("records", len(records))
        return records

    def keep(
        self,
        stage: str,
        rows: "Dataset",
        columns: list[str],
        test: Callable[..., bool],
        **settings: object,
    ) -> "Dataset":
        total = len(rows)
        self.progress(stage, 0, total)
        with _quiet_datasets():
            kept = rows.filter(
                test,
                input_columns=columns,
                new_fingerprint=self.fingerprint(stage, **settings),
            )
        self.progress(stage, total, total)
        self.count(stage, len(kept))
        return kept

    def tokenise(self, pairs: "Dataset", tokenizer: KimiTokenizer) -> "Dataset":
        from datasets import Dataset, Features, Value

        total = len(pairs)
        done = 0

        def lengths(prompts: list[str], outputs: list[str]) -> dict[str, list[int]]:
            nonlocal done
            batch = {
                "prompt_tokens": [tokenizer.count(prompt) for prompt in prompts],
                "output_tokens": [tokenizer.count(output) for output in outputs],
            }
            done += len(prompts)
            self.progress("tokenise", done, total)
            return batch

        features = Features({"prompt_tokens": Value("int64"), "output_tokens": Value("int64")})
        if total == 0:
            # map() of no rows adds no columns.
            return Dataset.from_dict({name: [] for name in features}, features=features)
        # A plain loop in one process: tiktoken's batch call and more processes are slower here.
        with _quiet_datasets():
            return pairs.map(
                lengths,
                batched=True,
                batch_size=_BATCH_RECORDS,
                input_columns=["prompt", "output"],
                remove_columns=pairs.column_names,
                features=features,
                new_fingerprint=self.fingerprint(
                    "tokenise", pattern=pins.SPLIT_PATTERN_SHA256, ranks=tokenizer.identity
                ),
            )


@contextmanager
def _quiet_datasets() -> Iterator[None]:
    """Silences the progress bars of ``datasets`` for a while: ours are shown instead."""
    import datasets

    were_off = datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if not were_off:
            datasets.enable_progress_bars()


def _rows(path: Path, progress: Progress) -> Iterator[dict[str, Any]]:
    """One row for every record of the file, in order; the text only where it can be needed."""
    import ijson

    size_bytes = path.stat().st_size
    index = -1
    with path.open("rb") as stream:
        _require_array(path, stream)
        try:
            for index, record in enumerate(ijson.items(stream, "item")):
                if index % _BATCH_RECORDS == 0:
                    progress("records", stream.tell(), size_bytes)
                yield _row(record, f"{path}, record {index}")
        except ijson.JSONError as error:
            raise MalformedInputError(
                f"{path} is not whole JSON (byte {stream.tell():,} of {size_bytes:,} read: "
                f"{_first_line(error)}): get the file again"
            ) from error
    if index < 0:
        raise MalformedInputError(f"{path} is an empty array: get the file again")
    progress("records", size_bytes, size_bytes)


def _first_line(error: Exception) -> str:
    # ijson hands on the parser's message as it came, as bytes where it quotes the input.
    message = error.args[0] if error.args else error
    text = message.decode("utf-8", "replace") if isinstance(message, bytes) else str(message)
    return text.strip().splitlines()[0]


def _require_array(path: Path, stream: IO[bytes]) -> None:
    # Of a top level that is no array, ijson would find no items and call that an empty file.
    first = stream.read(64).lstrip()[:1]
    stream.seek(0)
    if first != b"[":
        raise MalformedInputError(
            f"{path} does not start with '[': ShareGPT files are a JSON array"
        )


def _row(record: object, where: str) -> dict[str, Any]:
    turns = record.get("conversations") if isinstance(record, dict) else None
    if not isinstance(turns, list):
        raise MalformedInputError(f"{where} has no list 'conversations': not a ShareGPT record")
    if len(turns) < 2:
        return {"turns": len(turns), "roles": "", "prompt": "", "output": ""}
    values: list[str] = []
    for number, turn in enumerate(turns[:2]):
        for key in ("from", "value"):
            if not isinstance(turn, dict) or not isinstance(turn.get(key), str):
                raise MalformedInputError(f"{where}, turn {number} has no string {key!r}")
            values.append(turn[key])
    first_role, prompt, second_role, output = values
    return {
        "turns": len(turns),
        "roles": _roles(first_role, second_role),
        "prompt": prompt,
        "output": output,
    }
