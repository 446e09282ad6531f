"""`k3bench forms`: what every attention form costs, where they cross, how far kernels are."""

import json
from pathlib import Path
from typing import Any

import click

from k3bench.cli.errors import COULD_NOT_JUDGE, USAGE, CliError
from k3bench.cli.forms_options import (
    KIND,
    LONGEST_TABLE,
    Tokens,
    common_options,
    draw,
    named_hardware,
    named_model,
    once,
    published_distances,
    steps_of,
    usage_errors,
)
from k3bench.cli.forms_tables import (
    console,
    cost_table,
    device_document,
    gemm_rows,
    gemm_table,
    plain_table,
    ranks,
    shortage,
    significant,
)


@click.group()
def forms() -> None:
    """Cost models of attention forms: FLOPs, bytes and time bounds (all modelled).

    Bounds are what no schedule beats at a device's stated peaks. Tokens are counts such as 4096,
    64K or 1M. Exit codes: 0 good; 2 a crossover that does not exist; 64 a name or number that is
    not known; 65 a definition file that does not read; 66 a file that is not there.
    """


@forms.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def list_forms(as_json: bool) -> None:
    """Forms with their formulas, models with their layers, devices with their peaks."""
    from k3bench.roofline.forms import FORMS
    from k3bench.roofline.hardware import get_hardware, hardware_names
    from k3bench.roofline.model import get_model, model_names
    from k3bench.roofline.parameters import count_parameters

    models = [get_model(name) for name in model_names()]
    devices = [get_hardware(name) for name in hardware_names()]
    if as_json:
        document = {
            "forms": {
                form.name: {
                    "title": form.title,
                    "state_bytes": form.state,
                    "decode_flops": form.decode,
                    "assumption": form.assumption,
                }
                for form in FORMS.values()
            },
            "models": {
                model.name: {
                    "title": model.title,
                    "source": model.source,
                    "layers": {
                        name: model.attention_pattern.count(name) for name in model.attention
                    },
                    "mlps": {name: model.mlp_pattern.count(name) for name in model.mlps},
                    "parameters": count_parameters(model).total,
                    "active_parameters": count_parameters(model).active,
                    "assumed": dict(model.assumed),
                }
                for model in models
            },
            "hardware": {device.name: device_document(device) for device in devices},
        }
        click.echo(json.dumps(document, indent=1))
        return
    table = plain_table("forms", "state of a request, bytes a layer", "FLOPs of a decode step")
    table.add_column("assumes", overflow="fold")
    for form in FORMS.values():
        table.add_row(f"{form.name}: {form.title}", form.state, form.decode, form.assumption)
    console().print(table)
    table = plain_table("models", "attention layers", "parameters", "assumed")
    for model in models:
        count = count_parameters(model)
        kinds = ", ".join(
            f"{model.attention_pattern.count(name)} {name}" for name in model.attention
        )
        sizes = f"{count.total / 1e9:,.1f} B, {count.active / 1e9:.1f} B a token"
        assumed = "; ".join(f"{key}: {why}" for key, why in model.assumed.items())
        table.add_row(model.name, kinds, sizes, assumed or "-")
    console().print(table)
    table = plain_table("hardware", "bf16 PFLOP/s", "TB/s", "assumed")
    for device in devices:
        assumed = "; ".join(f"{key} {why}" for key, why in device.assumptions().items())
        table.add_row(
            f"{device.name}: {device.title}",
            f"{device.matrix_flops_per_s() / 1e15:.3f}",
            f"{device.hbm.value / 1e12:.2f}",
            assumed or "-",
        )
    console().print(table)


@forms.command()
@click.option("--model", "model_name", default="kimi-k3", show_default=True, metavar="NAME")
@click.option("--context", type=Tokens(), multiple=True, metavar="TOKENS")
@click.option("--chunk", type=Tokens(), metavar="TOKENS", help="Of a chunked prefill's chunks.")
@click.option(
    "--prefix-form",
    type=click.Choice(["decompressed", "absorbed"]),
    help="In which MLA attends cached tokens. [default: the form of the new ones]",
)
@click.option("--collectives", is_flag=True, help="Add two ring all-reduces a layer.")
@click.option("--published", is_flag=True, help="Beside K3's published MI355X decode, with ratios.")
@click.option("--gemms", is_flag=True, help="Show every product: M, N, K, count.")
@click.option("--svg", type=click.Path(path_type=Path), help="Draw bounds over the contexts.")
@common_options
def cost(
    model_name: str,
    context: tuple[int, ...],
    chunk: int | None,
    prefix_form: str | None,
    collectives: bool,
    published: bool,
    gemms: bool,
    svg: Path | None,
    phase: str,
    batch: int,
    hardware: str,
    tp: int,
    as_json: bool,
) -> None:
    """One step of a model on one rank, by block: FLOPs, bytes, time bound.

    --context counts the token that is decoded, or is the length of the prompt. Give it several
    times for a table over contexts; JSON is then a list.
    """
    from k3bench.roofline.blocks import model_steps
    from k3bench.roofline.parameters import rank_memory

    contexts = once(context) or (4096,)
    if prefix_form is not None and phase == "prefill":
        raise CliError("--prefix-form: a prefill has no cached tokens: leave it out", USAGE)
    with usage_errors():
        model, device = named_model(model_name), named_hardware(hardware)
        costs = [
            model_steps(
                model,
                steps_of(phase, tokens, batch, chunk),
                tp=tp,
                prefix_form=prefix_form,
                collectives=collectives,
            )
            for tokens in contexts
        ]
        memories = [rank_memory(model, tp, tokens, batch) for tokens in contexts]
    heads = {"phase": phase, "batch": batch, "tp": tp}
    documents: list[dict[str, Any]] = [
        {
            **found.to_json(device),
            "overlapped_bound_us": found.overlapped_bound_us(device),
            "kind": KIND,
            "model": model.name,
            "hardware": device.name,
            "context": tokens,
            **heads,
            "limited_by": {block.name: block.bound(device).limited_by for block in found.blocks},
            "matrix_peak": {block.name: block.dtype_on(device) for block in found.blocks},
            "memory": {
                "weight_bytes": memory.weights,
                "state_bytes": memory.states,
                "capacity_bytes": device.capacity.value,
                "fits": memory.total <= device.capacity.value,
            },
            "assumed": {**model.assumed, **device.assumptions()},
            **({"gemms": gemm_rows(found)} if gemms else {}),
        }
        for tokens, found, memory in zip(contexts, costs, memories, strict=True)
    ]
    if published:
        for document, found in zip(documents, costs, strict=True):
            document["published"] = published_distances(model, device, found, document)
    if svg is not None:
        lines = {
            block.name: [found.named(block.name).bound(device).seconds * 1e6 for found in costs]
            for block in costs[0].blocks
        }
        draw(svg, contexts, lines, f"{model.title}, {phase}, batch {batch}, TP{tp}, {device.title}")
    if as_json:
        click.echo(json.dumps(documents if len(documents) > 1 else documents[0], indent=1))
        return
    for document, found in zip(documents, costs, strict=True):
        title = (
            f"{model.title}, {phase} at {document['context']:,} tokens, batch {batch}, "
            f"{ranks(tp)} on {device.title} ({KIND})"
        )
        console().print(cost_table(title, found, device, document.get("published")))
        if gemms:
            console().print(gemm_table(document["gemms"]))
    for document in documents:
        if not document["memory"]["fits"]:
            click.echo(shortage(document, device), err=True)
    for key, why in documents[0]["assumed"].items():
        click.echo(f"assumed {key}: {why}", err=True)


@forms.command()
@click.option("--model", "model_name", metavar="NAME", help="Whole layers of a model ...")
@click.option(
    "--between",
    nargs=2,
    metavar="A B",
    help="Two attention names of the model, or two forms. [default: kda and full_attention]",
)
@click.option("--longest", type=Tokens(), default=1 << 20, show_default=True, metavar="TOKENS")
@click.option("--svg", type=click.Path(path_type=Path), help="Draw both bounds.")
@common_options
def crossover(
    model_name: str | None,
    between: tuple[str, str] | None,
    longest: int,
    svg: Path | None,
    phase: str,
    batch: int,
    hardware: str,
    tp: int,
    as_json: bool,
) -> None:
    """The context from which A costs less than B: by bounds, on given hardware.

    With --model: whole attention layers, projections included. Without: the forms alone.
    """
    from k3bench.roofline.blocks import attention_layer
    from k3bench.roofline.crossover import first_context
    from k3bench.roofline.forms import attention_alone, form_layer

    if phase == "chunked-prefill":
        raise CliError("a crossover of chunked prefills: use decode or prefill", USAGE)
    first, second = between or ("kda", "full_attention" if model_name else "mla")
    if first == second:
        raise CliError(f"--between {first} {second}: name two that differ", USAGE)
    with usage_errors():
        device = named_hardware(hardware)
        if model_name:
            model = named_model(model_name)
            for name in (first, second):
                model.form(name)

        def seconds(name: str, tokens: int) -> float:
            [step] = steps_of(phase, tokens, batch, None)
            if model_name:
                return attention_layer(model, name, step, tp).bound(device).seconds
            return attention_alone(form_layer(name, tp).attend(step)).bound(device).seconds

        def beats(tokens: int) -> bool:
            return seconds(first, tokens) < seconds(second, tokens)

        if beats(1) and not beats(longest):
            raise CliError(
                f"{first} costs less than {second} at 1 token and not at {longest:,}: ask for "
                f"--between {second} {first}",
                USAGE,
            )
        found = first_context(beats, longest)
        if svg is not None:
            contexts = [1 << power for power in range(7, longest.bit_length())]
            lines = {
                name: [seconds(name, tokens) * 1e6 for tokens in contexts]
                for name in (first, second)
            }
            draw(svg, contexts, lines, f"{phase}, batch {batch}, {device.title}", found)
    at = {name: None if found is None else seconds(name, found) * 1e6 for name in (first, second)}
    document = {
        "kind": KIND,
        "cheaper": first,
        "than": second,
        "from_context": found,
        "bound_us_there": at,
        "of": f"layers of {model_name}" if model_name else "forms alone",
        "phase": phase,
        "batch": batch,
        "hardware": device.name,
        "tp": tp,
    }
    if as_json:
        click.echo(json.dumps(document, indent=1))
    elif found is None:
        click.echo(f"{first} never costs less than {second} up to {longest:,} tokens ({KIND})")
    else:
        click.echo(
            f"{first} costs less than {second} from {found:,} tokens on: {phase}, batch {batch}, "
            f"{document['of']}, {ranks(tp)} on {device.title} ({KIND})"
        )
    if found is None:
        raise click.exceptions.Exit(COULD_NOT_JUDGE)


@forms.command()
@click.option("--form", "names", multiple=True, metavar="NAME", help="Only these forms.")
@click.option("--context", type=Tokens(LONGEST_TABLE), multiple=True, metavar="TOKENS")
@click.option("--svg", type=click.Path(path_type=Path), help="Draw bounds over the contexts.")
@common_options
def table(
    names: tuple[str, ...],
    context: tuple[int, ...],
    svg: Path | None,
    phase: str,
    batch: int,
    hardware: str,
    tp: int,
    as_json: bool,
) -> None:
    """Every form at one size (96 heads of 128) over contexts, the cheapest marked with *."""
    from k3bench.roofline.forms import FORMS, attention_alone, form_layer, get_form

    if phase == "chunked-prefill":
        raise CliError("a table of chunked prefills: use decode or prefill", USAGE)
    contexts = once(context) or tuple(4096 << shift for shift in (0, 2, 4, 6, 8))
    rows = []
    with usage_errors():
        device = named_hardware(hardware)
        for name in once(names) or FORMS:
            layers = get_form(name).layers
            layer = form_layer(name, tp)
            for tokens in contexts:
                [step] = steps_of(phase, tokens, batch, None)
                work = attention_alone(layer.attend(step))
                bound = work.bound(device)
                rows.append(
                    {
                        "form": name,
                        "context": tokens,
                        "state_bytes": layer.state_bytes(tokens) // layers,
                        "cache_bytes_per_token": layer.cache_bytes_per_token / layers,
                        "flops": work.flops / layers,
                        "bytes": work.hbm_bytes / layers,
                        "intensity": work.intensity,
                        "bound_us": bound.seconds * 1e6 / layers,
                        "limited_by": bound.limited_by,
                    }
                )
    cheapest = {
        tokens: min((row for row in rows if row["context"] == tokens), key=_bound_us)["form"]
        for tokens in contexts
    }
    if svg is not None:
        lines = {
            name: [_bound_us(row) for row in rows if row["form"] == name]
            for name in dict.fromkeys(str(row["form"]) for row in rows)
        }
        draw(svg, contexts, lines, f"{phase}, batch {batch}, TP{tp}, {device.title}")
    if as_json:
        document = {
            "kind": KIND,
            "hardware": device.name,
            "phase": phase,
            "batch": batch,
            "tp": tp,
            "cheapest": {str(tokens): name for tokens, name in cheapest.items()},
            "rows": rows,
        }
        click.echo(json.dumps(document, indent=1))
        return
    title = f"{phase}, batch {batch}, {ranks(tp)} on {device.title}: us a layer ({KIND})"
    shown = plain_table(title, *(f"{tokens:,}" for tokens in contexts), justify="right")
    for name in dict.fromkeys(str(row["form"]) for row in rows):
        cells = [
            f"{significant(_bound_us(row))}{'*' if cheapest[row['context']] == name else ''}"  # type: ignore[index]
            for row in rows
            if row["form"] == name
        ]
        shown.add_row(name, *cells)
    console().print(shown)


def _bound_us(row: dict[str, Any]) -> float:
    return float(row["bound_us"])
