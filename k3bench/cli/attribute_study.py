"""`k3bench attribute inventory, mechanism, compare`: a closer look at a trace."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from k3bench.cli.attribute_options import (
    Reading,
    composed,
    failures,
    method_options,
    reading_options,
    write_cells,
)
from k3bench.cli.errors import CHECK_FAILED, USAGE, CliError

if TYPE_CHECKING:
    from k3bench.attribution.composition import Composition


@click.command()
@click.argument("trace", type=click.Path(path_type=Path), metavar="TRACE")
@method_options
@click.option("--components", "by_component", is_flag=True, help="Sum up by component of a block.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@reading_options
def inventory(
    trace: Path, by_component: bool, as_json: bool, as_csv: bool, blocks: str, reading: Reading,
    **options: Any,
) -> None:  # fmt: skip
    """Every kernel: which block, how often per step, how long, shared or not."""
    from k3bench.attribution.blocks import load_blocks
    from k3bench.attribution.inventory import component_cells, components, inventory_cells
    from k3bench.cli.attribute_tables import print_components, print_inventory

    _one_format(as_json, as_csv)
    with failures():
        definition = load_blocks(blocks)
        composition = composed(trace, definition, reading, options)
    if as_json:
        found = composition.to_json(kernels=True)
        found["components"] = [
            {"block": p.block, "component": p.component, "us": p.us, "share": p.share_of_block}
            for p in components(composition, definition)
        ]
        click.echo(json.dumps(found, indent=1))
    elif as_csv:
        cells = component_cells if by_component else inventory_cells
        write_cells(cells(composition, definition))
    elif by_component:
        print_components(composition, components(composition, definition))
    else:
        print_inventory(composition, inventory_cells(composition, definition))
    _warn(composition)


@click.command()
@click.argument("trace", type=click.Path(path_type=Path), metavar="TRACE")
@method_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, in the published column layout.")
@reading_options
def mechanism(
    trace: Path, as_json: bool, as_csv: bool, blocks: str, reading: Reading, **options: Any
) -> None:
    """Bytes that a block must move in a step, the bandwidth achieved, and its share of the peak.

    Needs --input-tokens. Bytes are modelled from the model's shapes, times are measured.
    """
    from k3bench.attribution.blocks import load_blocks
    from k3bench.attribution.mechanism import mechanism as traffic_of
    from k3bench.attribution.mechanism import published_cells, rows_as_cells
    from k3bench.cli.attribute_tables import print_traffic

    _one_format(as_json, as_csv)
    with failures():
        definition = load_blocks(blocks)
        composition = composed(trace, definition, reading, options)
        rows = traffic_of(composition, definition)
    failed = next((check for check in composition.checks if check.status == "failed"), None)
    if failed:
        raise CliError(f"refused: {failed.name}: {failed.detail}", CHECK_FAILED)
    if as_json:
        click.echo(
            json.dumps(
                {
                    "label": composition.label,
                    "traffic": [row.to_json() for row in rows],
                    "checks": [check.to_json() for check in composition.checks],
                },
                indent=1,
            )
        )
    elif as_csv:
        write_cells(published_cells(composition, definition) or rows_as_cells(rows))
    else:
        print_traffic(rows)


@click.command()
@click.argument("first", type=click.Path(path_type=Path), metavar="TRACE")
@click.argument("second", required=False, type=click.Path(path_type=Path), metavar="[OTHER]")
@click.option(
    "--passes",
    type=(click.IntRange(1), click.IntRange(1)),
    default=(1, 2),
    show_default=True,
    help="Which two forward passes of TRACE, where no OTHER is given.",
)
@click.option("--chunk-tokens", type=click.IntRange(1), metavar="N", help="Tokens of one chunk.")
@click.option("--input-tokens", type=click.IntRange(1), metavar="N", help="Tokens of the prompt.")
@click.option("--top", type=click.IntRange(1), default=12, show_default=True, help="Rows shown.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, of every kernel.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, of every kernel.")
@reading_options
def compare(
    first: Path, second: Path | None, passes: tuple[int, int], chunk_tokens: int | None,
    input_tokens: int | None, top: int, as_json: bool, as_csv: bool, blocks: str, reading: Reading,
) -> None:  # fmt: skip
    """Compare two forward passes of a trace, or two traces, kernel by kernel.

    Passes are split at the definition's boundary kernel. Where the kernels carry launch grids, the
    MLA prefill form of each pass is inferred from BLOCK_M = tokens / grid z.
    """
    import numpy as np

    from k3bench.attribution.blocks import load_blocks
    from k3bench.attribution.compare import (
        choose_passes,
        compare_rows,
        pass_tokens,
        split_passes,
    )
    from k3bench.attribution.reader import read_trace
    from k3bench.cli.attribute_tables import print_comparison

    _one_format(as_json, as_csv)
    with failures():
        definition = load_blocks(blocks)
        chunk = chunk_tokens or definition.chunk_tokens
        one = read_trace(first, **reading.arguments())
        if second is None:
            chosen = choose_passes(split_passes(one, definition), one.label, passes)
            sides = [(one, rows, f"pass {n}") for rows, n in zip(chosen, passes, strict=True)]
            known = [pass_tokens(n - 1, chunk, input_tokens) for n in passes]
        else:
            other = read_trace(second, **reading.arguments())
            sides = [(t, np.arange(len(t.device)), t.label) for t in (one, other)]
            known = [pass_tokens(0, chunk_tokens or input_tokens, input_tokens)] * 2
        comparison = compare_rows(
            sides[0], sides[1], definition,
            tokens=(known[0][0], known[1][0]), prefixes=(known[0][1], known[1][1]),
        )  # fmt: skip
    if as_json:
        click.echo(json.dumps(comparison.to_json(), indent=1))
    elif as_csv:
        header = ["kernel", "first_us", "second_us", "ratio", "first_count", "second_count"]
        write_cells(
            [
                header,
                *(
                    [
                        row.name, f"{row.first_us:.3f}", f"{row.second_us:.3f}",
                        "" if row.ratio is None else f"{row.ratio:.4f}",
                        str(row.first_count), str(row.second_count),
                    ]
                    for row in comparison.deltas
                ),
            ]
        )  # fmt: skip
    else:
        print_comparison(comparison, top)


def _warn(composition: "Composition") -> None:
    """An inventory is for looking, so it is shown whatever fails; but it says what failed."""
    failed = next((check for check in composition.checks if check.status == "failed"), None)
    if failed:
        raise CliError(f"{failed.name}: {failed.detail}", CHECK_FAILED)


def _one_format(as_json: bool, as_csv: bool) -> None:
    if as_json and as_csv:
        raise CliError("--json and --csv given: give one of them", USAGE)
