"""Building every pinned artefact anew: surrogate, lengths from the dataset, drawn lists.

Nothing is written before everything came out as pinned, so a build that fails or is interrupted
leaves no mixture behind.
"""

from dataclasses import dataclass
from pathlib import Path

from workloads import draws, pins, sharegpt, store, surrogate, tokenizer
from workloads.committed import require_pinned
from workloads.download import Progress, fetch, no_progress
from workloads.errors import UnavailableError, WorkloadError
from workloads.identity import ordered_sha256
from workloads.importing import PINNED_NAME
from workloads.pins import StageCounts, Statistics
from workloads.statistics import summarise
from workloads.store import SavedLengths


@dataclass(frozen=True)
class BuildReport:
    """What a build made: file name -> where it lies, and what the real lengths came from.

    ``counts`` is None unless the recipe ran; ``statistics`` and ``lengths_from`` are None when only
    the surrogate was built.
    """

    files: dict[str, Path]
    lengths_from: str | None
    counts: StageCounts | None
    statistics: Statistics | None


def build(
    *,
    surrogate_only: bool = False,
    dataset: Path | None = None,
    tokenizer_file: Path | None = None,
    output: Path | None = None,
    progress: Progress = no_progress,
) -> BuildReport:
    """Build the committed data files byte for byte, into ``output`` (default: the cache).

    The real lengths come from the dataset (``dataset``, or downloaded); where the hub is out of
    reach, from an imported list that is the pinned one in file order. Raises ``UnavailableError``
    where neither is at hand, ``PinMismatchError`` where anything comes out differently.
    """
    contents = surrogate_files()
    lengths_from, counts, statistics = None, None, None
    if not surrogate_only:
        lengths, lengths_from, counts = _real_lengths(dataset, tokenizer_file, progress)
        statistics = summarise(lengths)
        contents |= real_files(lengths)
    directory = output or store.workloads_directory() / "built"
    for name, content in contents.items():
        store.write_atomically(directory / name, content)
    return BuildReport(
        files={name: directory / name for name in contents},
        lengths_from=lengths_from,
        counts=counts,
        statistics=statistics,
    )


def surrogate_files() -> dict[str, bytes]:
    """The surrogate and its drawn lists, built anew and checked: file name -> content."""
    lengths = surrogate.build_pinned()
    return _checked(
        {
            surrogate.DATA_FILE: surrogate.render(lengths),
            draws.SURROGATE_FILE: draws.render(draws.draw(lengths, surrogate.LABEL)),
        }
    )


def real_files(lengths_in_file_order: tuple[int, ...]) -> dict[str, bytes]:
    """The lists drawn from the real lengths, drawn anew and checked: file name -> content."""
    drawn = draws.draw(lengths_in_file_order, draws.REAL_LABEL)
    return _checked({draws.REAL_FILE: draws.render(drawn)})


def imported_in_file_order() -> SavedLengths | None:
    """An imported or built list that is the pinned one in file order, if this machine has one."""
    for name in store.saved_names():
        try:
            saved = store.load(name)
        except WorkloadError:
            continue  # A damaged list is no candidate; verify reports it by its own check.
        if ordered_sha256(saved.lengths) == pins.LENGTHS_IN_FILE_ORDER_SHA256:
            return saved
    return None


def _checked(contents: dict[str, bytes]) -> dict[str, bytes]:
    for name, content in contents.items():
        require_pinned(name, content)
    return contents


def _real_lengths(
    dataset: Path | None, tokenizer_file: Path | None, progress: Progress
) -> tuple[tuple[int, ...], str, StageCounts | None]:
    try:
        dataset = dataset or fetch(pins.DATASET, progress)
        tokenizer_file = tokenizer_file or fetch(pins.TOKENIZER, progress)
    except UnavailableError as error:
        saved = imported_in_file_order()
        if saved is None or dataset is not None:
            raise UnavailableError(
                f"{error}. Mend: give the files with --dataset FILE --tokenizer FILE; or import a "
                "list of the lengths (k3bench workloads import FILE); or build what needs no "
                "network (k3bench workloads build --surrogate); with a filled hub cache, "
                "HF_HUB_OFFLINE=1 uses it"
            ) from error
        return saved.lengths, f"imported list {saved.name!r} ({error})", None
    result = sharegpt.run(dataset, tokenizer.load(tokenizer_file), progress=progress)
    store.save(
        SavedLengths(
            name=PINNED_NAME,
            form="recipe",
            source=pins.DATASET.filename,
            source_sha256=result.file_sha256,
            lengths=result.prompt_tokens,
            output_lengths=result.output_tokens,
        )
    )
    return result.prompt_tokens, f"dataset file {pins.DATASET.filename}", result.counts
