"""`k3bench attribute profile, page, annotate, store, toy`: taking traces, and showing what came."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from k3bench.cli.attribute_options import Reading, failures, method_options, reading_options
from k3bench.cli.errors import (
    BAD_DATA,
    CHECK_FAILED,
    COULD_NOT_JUDGE,
    NO_INPUT,
    UNAVAILABLE,
    USAGE,
    CliError,
)

if TYPE_CHECKING:
    from k3bench.attribution.composition import Composition
    from k3bench.attribution.live.server import ServerClient
    from k3bench.attribution.live.study import ServerConfig
    from k3bench.attribution.render.records import Provenance

_CONFIGS = ("eager-ranges", "eager", "graph-ranges", "graph")
_MEASUREMENTS = ("decode-profile", "prefill-profile", "itl", "ttft")
_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.argument("url")
@click.option(
    "--config",
    "config_name",
    required=True,
    type=click.Choice(_CONFIGS),
    help="How the server was started.",
)
@click.option("--out", required=True, type=_FILE, help="Result file (JSON); resumed if it exists.")
@click.option(
    "--measure",
    "measures",
    multiple=True,
    type=click.Choice(_MEASUREMENTS),
    help="What to take. [default: what the study took on this configuration]",
)
@click.option(
    "--input-tokens",
    "lengths",
    multiple=True,
    type=click.IntRange(1),
    metavar="N",
    help="Context lengths. [default: the study's]",
)
@click.option("--trace-dir", metavar="DIR", help="Where the server writes its traces.")
@click.option(
    "--local-trace-dir",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="The same directory as seen from here. [default: --trace-dir]",
)
@click.option(
    "--steps",
    type=click.IntRange(1),
    default=24,
    show_default=True,
    help="Decode steps to profile.",
)
@click.option(
    "--repeats",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="TTFT samples after one warm-up.",
)
@click.option(
    "--dialect", type=click.Choice(["sglang", "openai"]), default="sglang", show_default=True
)
@click.option("--model", help="The model's name, for the openai dialect.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0, min_open=True),
    default=600.0,
    show_default=True,
    help="Longest silence of the server, in seconds.",
)
@click.option(
    "--trace-timeout",
    "trace_timeout_s",
    type=click.FloatRange(0, min_open=True),
    default=900.0,
    show_default=True,
    help="Longest wait for a trace, in seconds.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON too.")
def profile(
    url: str, config_name: str, out: Path, measures: tuple[str, ...], lengths: tuple[int, ...],
    trace_dir: str | None, local_trace_dir: Path | None, steps: int, repeats: int, dialect: Any,
    model: str | None, timeout_s: float, trace_timeout_s: float, as_json: bool,
) -> None:  # fmt: skip
    """Take the study's traces and times from a running server at URL.

    Every point is written when it is done; the same command resumes. Exit codes: 0; 1 the server is
    not what --config says; 2 a trace is missing or empty; 69 the server cannot be used.
    """
    from k3bench.attribution.live.results import StudyResults
    from k3bench.attribution.live.server import ServerClient
    from k3bench.attribution.live.study import CONFIGS, StudyOptions, TraceDirectory

    config = CONFIGS[config_name]
    points = _points(config, measures, lengths)
    traces = None
    if trace_dir is not None:
        traces = TraceDirectory(trace_dir, local_trace_dir or Path(trace_dir))
    elif any(measurement.endswith("profile") for measurement, _ in points):
        raise CliError("profiles need --trace-dir: where the server writes its traces", USAGE)
    options = StudyOptions(steps=steps, repeats=repeats, trace_timeout_s=trace_timeout_s)
    with _live_failures():
        client = ServerClient(url, dialect=dialect, model=model, timeout_s=timeout_s)
        results = StudyResults.open(out, config)
        _measure(client, config, points, options, traces, results)
    if as_json:
        click.echo(json.dumps(results.to_json(), indent=1))


def _points(
    config: "ServerConfig", measures: Sequence[str], lengths: Sequence[int]
) -> list[tuple[Any, int]]:
    """(measurement, input tokens) in the order to take them: the shortest context first."""
    from k3bench.attribution.live.study import DECODE_CONTEXTS, PREFILL_LENGTHS

    points = []
    for measurement in measures or config.measurements:
        prefill = measurement in ("prefill-profile", "ttft")
        usual = list((PREFILL_LENGTHS if prefill else DECODE_CONTEXTS).values())
        if measurement == "decode-profile" and config.ranges:
            usual = usual[:1]  # a map is learned once
        points += [(measurement, length) for length in sorted(lengths or usual)]
    return points


def _measure(
    client: "ServerClient", config: "ServerConfig", points: Sequence[tuple[Any, int]],
    options: Any, traces: Any, results: Any,
) -> None:  # fmt: skip
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from k3bench.attribution.live.study import check_server, measure_point

    server = check_server(client, config)
    results.describe_server(server)
    ranks = server["tp_size"] if isinstance(server["tp_size"], int) else 1
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as progress:
        task = progress.add_task(config.name, total=len(points))
        for measurement, tokens in points:
            name = f"{measurement} {tokens:,}"
            if results.has(measurement, tokens):
                progress.console.print(f"{name}: in {results.path.name} already", markup=False)
            else:
                point = measure_point(
                    client, config, measurement, tokens, options, traces=traces, ranks=ranks,
                    note=lambda text, name=name: progress.update(  # type: ignore[misc]
                        task, description=f"{name}: {text}"
                    ),
                )  # fmt: skip
                results.add(point)
                progress.console.print(f"{name}: {_said(point)}", markup=False)
            progress.advance(task)


def _said(point: Any) -> str:
    if point.traces:
        kernels = sum(trace.kernels for trace in point.traces)
        return f"{len(point.traces)} traces, {kernels:,} kernels"
    found = point.to_json()
    return f"best {found['best_s'] * 1e3:.2f} ms, median {found['median_s'] * 1e3:.2f} ms"


@contextmanager
def _live_failures() -> Iterator[None]:
    from k3bench.attribution.live.results import ResultsError
    from k3bench.attribution.live.server import ServerError
    from k3bench.attribution.live.study import StudyError
    from k3bench.attribution.live.traces import TraceError

    try:
        yield
    except ServerError as error:
        code = USAGE if error.reason == "protocol" else UNAVAILABLE
        raise CliError(str(error), code) from error
    except StudyError as error:
        raise CliError(str(error), CHECK_FAILED) from error
    except TraceError as error:
        raise CliError(str(error), COULD_NOT_JUDGE) from error
    except ResultsError as error:
        raise CliError(str(error), BAD_DATA) from error
    except OSError as error:
        raise CliError(f"{error.filename}: {error.strerror}", NO_INPUT) from error


@click.command()
@click.argument("compositions", nargs=-1, required=True, type=_FILE)
@click.option("--out", required=True, type=_FILE, help="The HTML file to write.")
@click.option("--title", default="Where the device time goes", show_default=True)
def page(compositions: tuple[Path, ...], out: Path, title: str) -> None:
    """Write one self-contained HTML page of COMPOSITIONS, made by `apply --json --kernels`."""
    from k3bench.attribution.render.page import page as make_page

    with _render_failures():
        out.write_text(make_page(_loaded(compositions), title), encoding="utf-8")
    click.echo(f"{out} written", err=True)


@click.command()
@click.argument("trace", type=click.Path(path_type=Path), metavar="TRACE")
@click.option("--out", required=True, type=_FILE, help="The trace to write (.json or .json.gz).")
@method_options
@reading_options
def annotate(trace: Path, out: Path, blocks: str, reading: Reading, **options: Any) -> None:
    """Copy TRACE with a track for every block, to open in Perfetto."""
    from k3bench.attribution.block_map import load_map
    from k3bench.attribution.blocks import load_blocks
    from k3bench.attribution.reader import read_trace
    from k3bench.attribution.render import annotate as render

    with failures(), _render_failures():
        definition = load_blocks(blocks)
        read = read_trace(trace, **reading.arguments())
        if options["capture"] is not None:
            capture = read_trace(
                options["capture"], rank=reading.rank, limits=reading.limits,
                require_device_work=False,
            )  # fmt: skip
            tracks = render.tracks_by_pairing(capture, read, definition)
        elif options["map_path"] is not None:
            tracks = render.tracks_by_map(read, load_map(options["map_path"]), definition)
        else:
            tracks = render.tracks_by_ranges(read, definition)
        report = render.annotate(trace, out, read, tracks, limits=reading.limits)
    click.echo(f"{out}: {report.slices:,} slices on {', '.join(report.tracks)}", err=True)


@click.command()
@click.argument("compositions", nargs=-1, required=True, type=_FILE)
@click.option("--here", is_flag=True, help="The traces were taken on this machine, as it is now.")
@click.option("--manifest", type=_FILE, help="Manifest of the machine the traces were taken on.")
@click.option("--source", help="Whose traces they are; the rows are then published, not measured.")
@click.option("--engine", default="sglang", show_default=True, help="What ran the model.")
@click.option("--batch", type=click.IntRange(1), default=1, show_default=True)
@click.option("--tensor-parallel", type=click.IntRange(1), default=1, show_default=True)
def store(
    compositions: tuple[Path, ...], here: bool, manifest: Path | None, source: str | None,
    engine: str, batch: int, tensor_parallel: int,
) -> None:  # fmt: skip
    """Enter COMPOSITIONS, made by `apply --json`, into the ledger: a row a block.

    One of --here, --manifest and --source says where the traces were taken.
    """
    from k3bench.attribution.render.records import BENCHMARK, records_of
    from k3bench.cli.ledger import cli_error, opened_ledger
    from k3bench.ledger import LedgerError, ingest, select_results

    if sum((here, manifest is not None, source is not None)) != 1:
        raise CliError("give one of --here, --manifest and --source", USAGE)
    with _render_failures():
        loaded = _loaded(compositions)
        provenance, manifests = _provenance(loaded, here, manifest, source)
        records = [
            record
            for composition in loaded
            for record in records_of(
                composition, provenance, engine=engine, batch=batch,
                tensor_parallel=tensor_parallel,
            )
        ]  # fmt: skip
    ledger = opened_ledger(create=True)
    try:
        with ledger.session() as session:
            known = {row.id for row in select_results(session, benchmark=f"^{BENCHMARK}\\.")}
        # Known ids stay as they are: a second time, "now" and the manifest's clock are later.
        new = [record for record in records if record["id"] not in known]
        report = ingest(ledger, new, manifests if new else ())
    except LedgerError as error:
        raise cli_error(error) from error
    there = len(records) - report.inserted
    click.echo(f"{report.inserted} rows entered, {there} were there", err=True)


def _provenance(
    compositions: "Sequence[Composition]", here: bool, manifest: Path | None, source: str | None
) -> "tuple[Provenance, list[dict[str, Any]]]":
    """Where the traces were taken, and the manifest to enter beside them."""
    from datetime import UTC, datetime

    from k3bench.attribution.render.records import Provenance, require_device
    from manifests import manifest_id

    if source is not None:
        return Provenance(datetime.now(UTC).isoformat(timespec="seconds"), source=source), []
    document = _manifest_of(None if here else manifest)
    for composition in compositions:
        require_device(composition, document)
    return (
        Provenance(
            document["state"]["captured_at"],
            manifest_id=manifest_id(document),
            commit=document["source"]["commit"],
        ),
        [document],
    )


def _manifest_of(path: Path | None) -> dict[str, Any]:
    """The manifest in a file, or of this machine."""
    from k3bench.paths import ProjectNotFound, project_root
    from manifests import ManifestError, capture, validate

    try:
        if path is None:
            return capture(project_root())
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        validate(document)
        return document
    except ProjectNotFound as error:
        raise CliError(str(error), NO_INPUT) from error
    except ManifestError as error:
        raise CliError(str(error), BAD_DATA) from error
    except ValueError as error:
        raise CliError(f"{path}: not a manifest ({error})", BAD_DATA) from error


@click.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@click.option("--layers", type=click.IntRange(5), default=9, show_default=True, help="4n + 1.")
@click.option("--steps", type=click.IntRange(1), default=8, show_default=True)
def toy(directory: Path, layers: int, steps: int) -> None:
    """Profile a toy of K3's layer pattern on this CPU, to try the other commands on.

    Writes eager.json (with ranges), plain.json (without) and toy-k3.toml (its blocks) to DIRECTORY.
    """
    from k3bench.attribution.live.toy import ToyConfig, ToyK3
    from k3bench.attribution.live.toy_profile import profile_toy, toy_blocks

    try:
        model = ToyK3(ToyConfig(layers=layers))
        directory.mkdir(parents=True, exist_ok=True)
        profile_toy(model, directory / "eager.json", steps=steps)
        profile_toy(model, directory / "plain.json", steps=steps, ranges=False)
        (directory / "toy-k3.toml").write_text(toy_blocks(model.config), encoding="utf-8")
    except ValueError as error:
        raise CliError(str(error), USAGE) from error
    except OSError as error:
        raise CliError(f"{error.filename}: {error.strerror}", NO_INPUT) from error
    click.echo(f"eager.json, plain.json and toy-k3.toml written to {directory}", err=True)


def _loaded(paths: Sequence[Path]) -> "list[Composition]":
    from k3bench.attribution.render.saved import load_composition

    return [load_composition(path) for path in paths]


@contextmanager
def _render_failures() -> Iterator[None]:
    from k3bench.attribution.render.names import RenderError

    try:
        yield
    except RenderError as error:
        raise CliError(str(error), BAD_DATA) from error
    except OSError as error:
        raise CliError(f"{error.filename}: {error.strerror}", NO_INPUT) from error


COMMANDS: tuple[click.Command, ...] = (profile, page, annotate, store, toy)
