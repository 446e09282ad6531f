"""What the commands of `k3bench forms` share: options, names to definitions, errors, drawings."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from k3bench.cli.errors import NO_INPUT, USAGE, CliError

if TYPE_CHECKING:
    from k3bench.roofline.blocks import StepCost
    from k3bench.roofline.hardware import Hardware
    from k3bench.roofline.model import Model
    from k3bench.roofline.step import Step

_PHASES = ("decode", "prefill", "chunked-prefill")
LONGEST = 1 << 24
KIND = "modelled"


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

    _require_file(name)
    return get_model(name)


def named_hardware(name: str) -> "Hardware":
    from k3bench.roofline.hardware import get_hardware

    _require_file(name)
    return get_hardware(name)


def _require_file(name: str) -> None:
    if name.endswith(".toml") and not Path(name).is_file():
        raise CliError(f"{name}: no such file: give a shipped name or a path", NO_INPUT)


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
    from k3bench.ledger.published import published_records
    from k3bench.roofline.published import distances

    published_ms = {
        record["parameters"]["block"]: 1e3 * record["median_s"]
        for record in published_records()
        if record["benchmark"] == "published.k3_decode.composition"
        and record["parameters"]["context"] == document["context"]
    }
    setting = (model.name, device.name, document["phase"], document["batch"], document["tp"])
    if setting != ("kimi-k3", "mi355x", "decode", 1, 8) or not published_ms:
        raise CliError(
            "--published: only kimi-k3, mi355x, decode, batch 1, --tp 8 at 4096, 32768, 65536, "
            "524288 or 1047552 tokens was published",
            USAGE,
        )
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
