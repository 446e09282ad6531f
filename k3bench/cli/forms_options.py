"""What the commands of `k3bench forms` share: options, names to definitions, errors, drawings."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from k3bench.cli.errors import BAD_DATA, NO_INPUT, USAGE, CliError

if TYPE_CHECKING:
    from k3bench.roofline.blocks import StepCost
    from k3bench.roofline.hardware import Hardware
    from k3bench.roofline.model import Model
    from k3bench.roofline.step import Step

    _IntegerType = click.ParamType[int]
else:  # click before 8.4 has no parameter there
    _IntegerType = click.ParamType

T = TypeVar("T")
_PHASES = ("decode", "prefill", "chunked-prefill")
LONGEST = 1 << 24
# The block-sparse form's mask is laid out for as many.
LONGEST_TABLE = 1 << 20
KIND = "modelled"


class Tokens(_IntegerType):
    """A count of tokens: 4096, 64K (x 1,024) or 1M (x 1,048,576)."""

    name = "tokens"

    def __init__(self, longest: int = LONGEST) -> None:
        self.longest = longest

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"(\d{1,12})([KM]?)", str(value).strip().upper())
        if found is None:
            self.fail(
                f"{value!r}: give one count such as 4096, 64K or 1M; several --context are given "
                "one by one",
                param,
                ctx,
            )
        count = int(found[1]) * {"": 1, "K": 1 << 10, "M": 1 << 20}[found[2]]
        if not 1 <= count <= self.longest:
            self.fail(f"{value}: give 1 to {self.longest:,} tokens", param, ctx)
        return count


def once(values: Sequence[T]) -> tuple[T, ...]:
    """What was given, each of it once, in the order given."""
    return tuple(dict.fromkeys(values))


def common_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say on what, in which phase, and how split."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
        click.option("--tp", type=click.IntRange(1), default=1, help="Tensor-parallel ranks."),
        click.option(
            "--hardware",
            default="mi355x",
            show_default=True,
            metavar="NAME",
            help="A device, or a path to a .toml.",
        ),
        click.option("--batch", type=click.IntRange(1), default=1, help="Equal sequences."),
        click.option("--phase", type=click.Choice(_PHASES), default="decode", show_default=True),
    ):
        command = option(command)
    return command


class usage_errors:  # noqa: N801  # reads as what it is at the with statement
    """Turns a RooflineError into the command line's own error."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        from k3bench.roofline.errors import RooflineError

        if isinstance(error, RooflineError):
            raise CliError(str(error), USAGE) from error


def named_model(name: str) -> "Model":
    from k3bench.roofline.model import get_model

    return _defined(name, get_model)


def named_hardware(name: str) -> "Hardware":
    from k3bench.roofline.hardware import get_hardware

    return _defined(name, get_hardware)


def _defined(name: str, get: Callable[[str], T]) -> T:
    """A definition by name or path: a missing file and a malformed one have codes of their own."""
    from k3bench.roofline.errors import RooflineError

    if not name.endswith(".toml"):
        return get(name)
    if not Path(name).is_file():
        raise CliError(f"{name}: no such file: give a shipped name or a path", NO_INPUT)
    try:
        return get(name)
    except RooflineError as error:
        raise CliError(str(error), BAD_DATA) from error


def steps_of(phase: str, tokens: int, batch: int, chunk: int | None) -> Sequence["Step"]:
    from k3bench.roofline.step import Step, chunks_of

    if (chunk is None) == (phase == "chunked-prefill"):
        raise CliError("--chunk and --phase chunked-prefill go together: give both", USAGE)
    if phase == "decode":
        return (Step.decode(tokens, batch),)
    if chunk is None:
        return (Step.prefill(tokens, batch),)
    return chunks_of(tokens, chunk, batch)


def published_distances(
    model: "Model", device: "Hardware", found: "StepCost", document: dict[str, Any]
) -> dict[str, dict[str, float]]:
    """Published milliseconds and their ratio to the bound, by block."""
    from k3bench.roofline.published import SETTING, distances, published_decodes

    decodes = {decode.context: decode for decode in published_decodes()}
    setting = {name: document[name] for name in ("phase", "batch", "tp")}
    setting |= {"model": model.name, "hardware": device.name}
    if setting != SETTING or document["context"] not in decodes:
        raise CliError(
            "--published: only kimi-k3, mi355x, decode, batch 1, --tp 8 at "
            f"{', '.join(map(str, decodes))} tokens was published",
            USAGE,
        )
    published_ms = decodes[document["context"]].ms
    return {
        row.block: {
            "published_ms": row.published_ms,
            "bound_ms": row.bound_ms,
            "published_over_bound": row.ratio,
        }
        for row in distances(found, device, published_ms)
    }


def draw(
    path: Path,
    contexts: Sequence[int],
    lines: dict[str, list[float]],
    title: str,
    crossing: int | None = None,
) -> None:
    from k3bench.roofline.plots import draw_lines

    try:
        path.write_text(draw_lines(contexts, lines, title, crossing), encoding="utf-8")
    except OSError as error:
        raise CliError(f"--svg {path}: {error.strerror}: give another path", USAGE) from error
    click.echo(f"k3bench: wrote {path}", err=True)
