"""Options and failures that the verbs of ``k3bench attribute`` have in common."""

import csv
import io
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from k3bench.cli.errors import BAD_DATA, NO_INPUT, USAGE, CliError

if TYPE_CHECKING:
    from k3bench.attribution.blocks import BlockDefinition
    from k3bench.attribution.byte_stream import ReadLimits
    from k3bench.attribution.composition import Composition

_GIB = 1 << 30


@dataclass(frozen=True)
class Reading:
    """How traces are read: what every verb passes on to ``read_trace``."""

    rank: int | None
    device: str
    max_gib: float
    max_events: int

    @property
    def limits(self) -> "ReadLimits":
        from k3bench.attribution.byte_stream import ReadLimits

        return ReadLimits(text_bytes=int(self.max_gib * _GIB), kept_events=self.max_events)

    def arguments(self) -> dict[str, Any]:
        return {"rank": self.rank, "device": self.device, "limits": self.limits}


def reading_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--blocks, --rank, --device and the limits; the command gets ``blocks`` and ``reading``."""

    @click.option(
        "--blocks",
        required=True,
        metavar="NAME_OR_TOML",
        help="kimi-k3, kimi-linear, generic-decoder, or a definition of your own.",
    )
    @click.option("--rank", type=click.IntRange(0), help="The rank to take of a merged trace.")
    @click.option(
        "--device",
        type=click.Choice(["gpu", "cpu"]),
        default="gpu",
        show_default=True,
        help="cpu: take the outermost CPU operators as the device work.",
    )
    @click.option(
        "--max-gib",
        type=click.FloatRange(0, min_open=True),
        default=16.0,
        show_default=True,
        help="Refuse more JSON than this.",
    )
    @click.option(
        "--max-events", type=click.IntRange(1), default=20_000_000, show_default=True,
        help="Refuse more kernels, launches and ranges than this.",
    )  # fmt: skip
    @wraps(command)
    def wrapped(rank: int | None, device: str, max_gib: float, max_events: int, **rest: Any) -> Any:
        return command(reading=Reading(rank, device, max_gib, max_events), **rest)

    return wrapped


def method_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--capture or --map, --steps, --phase and what is known of the run."""

    @click.option(
        "--capture",
        type=click.Path(path_type=Path),
        metavar="CAPTURE",
        help="Pair the replay with this capture trace, by position.",
    )
    @click.option(
        "--map",
        "map_path",
        type=click.Path(path_type=Path),
        metavar="MAP",
        help="Look kernels up in this map, made by learn.",
    )
    @click.option("--steps", type=click.IntRange(1), metavar="N", help="Steps in the trace.")
    @click.option(
        "--phase", type=click.Choice(["decode", "prefill"]), default="decode", show_default=True
    )
    @click.option("--label", metavar="TEXT", help="What to call it. [default: the file's name]")
    @click.option("--input-tokens", type=click.IntRange(1), metavar="N", help="Context length.")
    @click.option(
        "--measured-ms",
        type=click.FloatRange(0, min_open=True),
        metavar="MS",
        help="ITL (decode) or TTFT (prefill) of a run without ranges, to check the total by.",
    )
    @click.option(
        "--include-collectives", is_flag=True, help="Make the collectives a block of their own."
    )  # fmt: skip
    @wraps(command)
    def wrapped(*args: Any, **rest: Any) -> Any:
        if rest["capture"] is not None and rest["map_path"] is not None:
            raise CliError("--capture and --map given: give one of them", USAGE)
        return command(*args, **rest)

    return wrapped


@contextmanager
def failures() -> Iterator[None]:
    """Turns the errors of attribution and of files into one line and an exit code."""
    from k3bench.attribution.errors import AttributionError, RequestError

    try:
        yield
    except RequestError as error:
        raise CliError(str(error), USAGE) from error
    except AttributionError as error:
        raise CliError(str(error), BAD_DATA) from error
    except OSError as error:
        raise CliError(
            f"{error.filename or 'input'}: {error.strerror or error}", NO_INPUT
        ) from error


def composed(
    trace: Path, definition: "BlockDefinition", reading: Reading, options: dict[str, Any]
) -> "Composition":
    """The composition that ``method_options`` describe."""
    from k3bench.attribution.pipeline import compose_trace

    measured = options["measured_ms"]
    return compose_trace(
        trace,
        definition,
        phase=options["phase"],
        capture=options["capture"],
        block_map=options["map_path"],
        steps=options["steps"],
        label=options["label"],
        input_tokens=options["input_tokens"],
        measured_us=None if measured is None else measured * 1e3,
        include_collectives=options["include_collectives"],
        **reading.arguments(),
    )


def write_cells(cells: Sequence[Sequence[str]]) -> None:
    """Prints rows as CSV; a cell that a spreadsheet would run as a formula is made text."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for row in cells:
        writer.writerow([f"'{cell}" if cell[:1] in ("=", "+", "@") else cell for cell in row])
    sys.stdout.write(text.getvalue())
