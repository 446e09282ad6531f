"""`k3bench attribute`: which block of a model owns the device time of a profiler trace."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from k3bench.cli.attribute_live import COMMANDS
from k3bench.cli.attribute_options import (
    Reading,
    composed,
    failures,
    method_options,
    reading_options,
    write_cells,
)
from k3bench.cli.attribute_study import compare, inventory, mechanism
from k3bench.cli.errors import BAD_DATA, CHECK_FAILED, COULD_NOT_JUDGE, USAGE, CliError

if TYPE_CHECKING:
    from k3bench.attribution.blocks import BlockDefinition
    from k3bench.attribution.composition import CheckOutcome, Composition


@click.group()
def attribute() -> None:
    """Attribute a profiler trace's device time to the blocks of a model.

    An eager trace carries the ranges; a graph trace needs its capture (apply --capture) or a map
    learned from an eager run (learn, then apply --map).
    """


for _command in (compare, inventory, mechanism, *COMMANDS):
    attribute.add_command(_command)


@attribute.command()
@click.argument("trace", type=click.Path(path_type=Path), metavar="TRACE")
@click.option(
    "--replay",
    type=click.Path(path_type=Path),
    metavar="REPLAY",
    help="TRACE is a capture, and this its replay.",
)
@click.option("--steps", type=click.IntRange(1), metavar="N", help="Decode steps in TRACE.")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), metavar="MAP", help="Write the map."
)
@click.option("--json", "as_json", is_flag=True, help="Print the map as JSON.")
@click.option("--csv", "as_csv", is_flag=True, help="Print the map as CSV.")
@reading_options
def learn(
    trace: Path, replay: Path | None, steps: int | None, out: Path | None, as_json: bool,
    as_csv: bool, blocks: str, reading: Reading,
) -> None:  # fmt: skip
    """Learn which block launches which kernel name, from an eager decode trace or a capture.

    Exit codes: 0; 1 a check failed, and no map is written; 65 and above: bad input.
    """
    from k3bench.attribution.block_map import save_map
    from k3bench.attribution.blocks import load_blocks
    from k3bench.attribution.pipeline import learn_map
    from k3bench.cli.attribute_tables import print_checks, print_map

    _one_format(as_json, as_csv)
    with failures():
        learned = learn_map(
            trace, load_blocks(blocks), replay=replay, steps=steps, **reading.arguments()
        )
    failed = _failed(learned.checks)
    if as_json:
        click.echo(json.dumps(learned.to_json(), indent=1))
    elif as_csv:
        write_cells(
            [
                ["kernel", "block", "per_step", "mean_us", "median_us", "shared", "collective"],
                *(
                    [
                        entry.name, use.block, f"{use.per_step:g}",
                        "" if use.mean_us is None else f"{use.mean_us:.3f}",
                        "" if use.median_us is None else f"{use.median_us:.3f}",
                        "yes" if entry.shared else "no", "yes" if entry.collective else "no",
                    ]
                    for entry in learned.names for use in entry.uses
                ),
            ]
        )  # fmt: skip
    else:
        print_map(learned)
        print_checks(learned.checks)
    if failed:
        raise CliError(f"no map: {failed.name}: {failed.detail}", CHECK_FAILED)
    if out is not None:
        with failures():
            save_map(learned, out)


@attribute.command()
@click.argument("replay", type=click.Path(path_type=Path), metavar="REPLAY")
@method_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV in the published column layout.")
@click.option("--kernels", is_flag=True, help="With --json: every kernel name too.")
@click.option(
    "--show-refused", is_flag=True, help="Show a composition although one of its checks failed."
)
@reading_options
def apply(
    replay: Path, as_json: bool, as_csv: bool, kernels: bool, show_refused: bool, blocks: str,
    reading: Reading, **options: Any,
) -> None:  # fmt: skip
    """The composition of one step: how much of it is which block.

    REPLAY is a graph trace (with --capture or --map), or an eager trace with ranges. A composition
    of which a check failed is not shown. Exit codes: 0; 1 a check failed; 64 and above: bad usage
    or input.
    """
    from k3bench.attribution.blocks import load_blocks
    from k3bench.cli.attribute_tables import print_checks, print_composition

    _one_format(as_json, as_csv)
    with failures():
        definition = load_blocks(blocks)
        composition = composed(replay, definition, reading, options)
    failed = _failed(composition.checks)
    shown = failed is None or show_refused
    if as_json:
        click.echo(json.dumps(_composition_json(composition, shown, kernels), indent=1))
    else:
        if as_csv and shown:
            _print_csv(composition, definition)
        elif shown:
            print_composition(composition)
        print_checks(composition.checks, stderr=as_csv or not shown)
    if failed:
        raise CliError(f"refused: {failed.name}: {failed.detail}", CHECK_FAILED)


@attribute.command()
@click.argument("traces", nargs=-1, required=True, type=click.Path(path_type=Path))
@method_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--csv", "as_csv", is_flag=True, help="Print the checks as CSV.")
@reading_options
def check(
    traces: Sequence[Path], as_json: bool, as_csv: bool, blocks: str, reading: Reading,
    **options: Any,
) -> None:  # fmt: skip
    """Check traces: structural counts, whole counts, unmapped names, totals, and one another.

    Given several, the dispatches per step must be the same in all of them. Exit codes: 0; 1 a check
    failed; 2 nothing independent of the trace could be checked; 64 and above: bad usage or input.
    """
    from k3bench.attribution.blocks import load_blocks
    from k3bench.attribution.checks import is_independent, same_counts
    from k3bench.cli.attribute_tables import console, plain, print_checks

    _one_format(as_json, as_csv)
    if len(traces) > 1 and (options["label"] or options["measured_ms"]):
        raise CliError("--label and --measured-ms belong to one trace: check them singly", USAGE)
    with failures():
        definition = load_blocks(blocks)
        found = [composed(trace, definition, reading, options) for trace in traces]
    together = [same_counts(found)] if len(found) > 1 else []
    if as_json:
        click.echo(
            json.dumps(
                {
                    "traces": [
                        {"label": c.label, "checks": [k.to_json() for k in c.checks]} for c in found
                    ],
                    "checks": [k.to_json() for c in found for k in c.checks]
                    + [k.to_json() for k in together],
                },
                indent=1,
            )
        )
    elif as_csv:
        rows = [[c.label, k.name, k.status, k.detail] for c in found for k in c.checks]
        rows += [["all", k.name, k.status, k.detail] for k in together]
        write_cells([["trace", "check", "status", "detail"], *rows])
    else:
        for composition in found:
            console().print(plain(composition.label))
            print_checks(composition.checks)
        if together:
            print_checks(together)
    every = [k for c in found for k in c.checks] + together
    failed = _failed(every)
    if failed:
        raise CliError(f"{failed.name}: {failed.detail}", CHECK_FAILED)
    if not any(is_independent(k) and k.status == "ok" for k in every):
        raise CliError(
            "nothing independent of the trace was checked: give --measured-ms, or a definition "
            "with [[counts]]",
            COULD_NOT_JUDGE,
        )


def _composition_json(composition: "Composition", shown: bool, kernels: bool) -> dict[str, Any]:
    found = composition.to_json(kernels=kernels and shown)
    if shown:
        return found
    return {**found, "refused": True, "blocks": {}, "total_us": None, "dispatches": None}


def _print_csv(composition: "Composition", definition: "BlockDefinition") -> None:
    """The published layout where the model has its blocks, else a row a block."""
    from k3bench.attribution.render.names import RenderError
    from k3bench.attribution.render.published_csv import published_csv

    if {"kda", "full_attn", "moe"} <= set(definition.block_names):
        try:
            click.echo(published_csv([composition]), nl=False)
        except RenderError as error:
            raise CliError(str(error), BAD_DATA) from error
        return
    write_cells(
        [
            ["context", "block", "dispatches_per_step", "us_per_step", "pct"],
            *(
                [
                    composition.label,
                    b.name,
                    f"{b.dispatches:g}",
                    f"{b.us:.3f}",
                    f"{100 * b.share:.2f}",
                ]
                for b in composition.blocks
            ),
        ]
    )


def _failed(checks: "Sequence[CheckOutcome]") -> "CheckOutcome | None":
    return next((check for check in checks if check.status == "failed"), None)


def _one_format(as_json: bool, as_csv: bool) -> None:
    if as_json and as_csv:
        raise CliError("--json and --csv given: give one of them", USAGE)
