"""One self-contained HTML page of compositions: figures, the same numbers as tables, every check.

Nothing is fetched and nothing runs: the page's policy allows its own stylesheet, by hash, and no
script, image, font or connection. Names from traces are escaped (see ``names``).
"""

import base64
import hashlib
from collections.abc import Iterable, Sequence

from k3bench.attribution.composition import Composition, tidy
from k3bench.attribution.render.figures import (
    block_names,
    crossing_figure,
    crossing_sentence,
    layer_points,
    milliseconds,
    stacked_bars,
)
from k3bench.attribution.render.names import RenderError, escaped
from k3bench.attribution.render.palette import colours_of

_PHASES = (("decode", "Decode, one step"), ("prefill", "Prefill, one prompt"))
_MAX_KERNELS = 40

_STYLE = """
:root { color-scheme: light dark; --text: #1b1b1b; --soft: #595959; --line: #c9c9c9;
  --page: #ffffff; --bad: #b00020; }
@media (prefers-color-scheme: dark) { :root { --text: #ececec; --soft: #ababab; --line: #4a4a4a;
  --page: #161616; --bad: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
main { max-width: 76rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.5rem; line-height: 1.25; } h2 { font-size: 1.2rem; margin-top: 2.5rem; }
h3 { font-size: 1rem; }
.soft, figcaption { color: var(--soft); }
.figures { display: grid; gap: 1.5rem 2.5rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); }
figure { margin: 0; } figcaption { margin-bottom: .6rem; }
svg { display: block; width: 100%; max-width: 36rem; height: auto; }
svg text { font: 12px system-ui, sans-serif; fill: var(--text); }
svg text.in { text-anchor: middle; }
svg text.black { fill: #000000; } svg text.white { fill: #ffffff; }
svg text.end { text-anchor: end; }
svg .plot { fill: none; stroke: var(--line); } svg .grid { stroke: var(--line); stroke-width: .5; }
svg .cross { stroke: var(--text); stroke-dasharray: 4 3; }
svg polyline { fill: none; stroke-width: 2; }
.key { list-style: none; display: flex; flex-wrap: wrap; gap: .2rem 1rem; padding: 0; }
.key svg { display: inline-block; width: .9em; height: .9em; margin-right: .4em; }
.scroll { overflow-x: auto; } .scroll:focus-visible { outline: 2px solid currentcolor; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: .5rem 0 1rem; }
caption { text-align: left; color: var(--soft); padding-bottom: .3rem; }
th, td { padding: .25rem .7rem .25rem 0; border-bottom: 1px solid var(--line); text-align: left;
  vertical-align: top; }
.n { text-align: right; white-space: nowrap; } th.n { white-space: normal; }
td:not(.n) { min-width: 6rem; } td bdi, td .name { overflow-wrap: anywhere; }
.name { font-family: ui-monospace, monospace; font-size: .85rem; display: inline-block;
  min-width: 14rem; }
.failed { color: var(--bad); font-weight: 700; }
details summary { cursor: pointer; }
"""


def page(compositions: Sequence[Composition], title: str = "Where the device time goes") -> str:
    """The page as text. Raises RenderError when there is nothing to show."""
    if not compositions:
        raise RenderError("no composition to show: apply a map or a capture to a trace first")
    sections = []
    for phase, heading in _PHASES:
        chosen = [composition for composition in compositions if composition.phase == phase]
        if chosen:
            # In the order of context where it is known; those without stay last, as given.
            chosen.sort(key=lambda c: (c.input_tokens is None, c.input_tokens or 0))
            sections.append(_section(heading, chosen))
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escaped(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{escaped(title)}</h1>\n{_introduction(compositions)}\n"
        + "\n".join(sections)
        + f"\n{_sources(compositions)}\n</main>\n</body>\n</html>\n"
    )


def _introduction(compositions: Sequence[Composition]) -> str:
    devices = _listed(composition.device for composition in compositions)
    definitions = _listed(composition.definition for composition in compositions)
    kinds = _listed(composition.kind for composition in compositions)
    failed = sum(not composition.passed for composition in compositions)
    warning = (
        f'<p class="failed">{failed} of {len(compositions)} compositions failed a check: '
        "their numbers may be wrong; see the checks.</p>"
        if failed
        else ""
    )
    return (
        f'<p class="soft">{kinds.capitalize()} on {devices}: device time read from the profiler '
        f"traces listed below. Block definition: {definitions}.</p>{warning}"
    )


def _section(heading: str, compositions: Sequence[Composition]) -> str:
    names = block_names(compositions)
    key = "".join(
        f'<li><svg viewBox="0 0 9 9" aria-hidden="true"><rect width="9" height="9" '
        f'fill="{colour}"/></svg>{escaped(name)}</li>'
        for name, colour in colours_of(names).items()
    )
    figures = [_figure("Shares of the device time.", stacked_bars(compositions, shares=True))]
    if len(compositions) > 1:
        grown = stacked_bars(compositions, shares=False)
        figures.append(_figure("The same in proportion to the time.", grown))
    points = layer_points(compositions)
    if len(points) > 1:
        figures.append(_figure(crossing_sentence(points), crossing_figure(points)))
    return (
        f'<section>\n<h2>{heading}</h2>\n<ul class="key">{key}</ul>\n'
        f'<div class="figures">{"".join(figures)}</div>\n'
        f"{_blocks_table(compositions, names)}\n{_layers_table(compositions)}\n"
        f"{_checks(compositions)}\n{_kernels(compositions)}\n</section>"
    )


def _figure(caption: str, svg: str) -> str:
    return f"<figure><figcaption>{escaped(caption, 400)}</figcaption>{svg}</figure>"


def _blocks_table(compositions: Sequence[Composition], names: Sequence[str]) -> str:
    # A decode step's collectives are launch skew in an eager trace; a prefill's are real work.
    prefill = compositions[0].phase == "prefill"
    heads = ["context", "steps", *names, "sum", "collectives left out", "measured"]
    heads.append("measured / (sum + collectives)" if prefill else "measured / sum")
    rows = []
    for composition in compositions:
        cells = [_label(composition), str(composition.steps)]
        for name in names:
            block = composition.block(name)
            cells.append("-" if block is None else f"{_ms(block.us)} ({block.share:.2%})")
        measured = composition.measured_us
        total = composition.total_us + (composition.excluded_us if prefill else 0.0)
        cells += [
            _ms(composition.total_us),
            _ms(composition.excluded_us) if composition.excluded_us else "-",
            "-" if measured is None else _ms(measured),
            "-" if measured is None or not total else f"{measured / total:.3f}",
        ]
        rows.append(cells)
    caption = (
        "Milliseconds, with the share of the sum; measured is an ITL or TTFT by the wall clock."
    )
    return _table(caption, heads, rows)


def _layers_table(compositions: Sequence[Composition]) -> str:
    rows = [
        [
            _label(composition),
            escaped(block.name),
            str(block.layers),
            f"{block.us_per_layer:,.2f}",
            f"{tidy(block.dispatches):,}",
            f"{block.shared_us / block.us:.1%}" if block.us else "-",
        ]
        for composition in compositions
        for block in composition.blocks
        if block.layers and block.us_per_layer is not None
    ]
    if not rows:
        return ""
    heads = ["context", "block", "layers", "us a layer", "dispatches", "of it by splitting names"]
    return _table("One layer of each block.", heads, rows, text_columns=2)


def _checks(compositions: Sequence[Composition]) -> str:
    rows = [
        [
            _label(composition),
            escaped(check.name),
            f'<span class="{check.status}">{check.status}</span>',
            escaped(check.detail, 400),
        ]
        for composition in compositions
        for check in composition.checks
    ]
    notes = "".join(
        f"<li>{_label(composition)}: {escaped(note, 400)}</li>"
        for composition in compositions
        for note in composition.notes
    )
    listed = f"<ul>{notes}</ul>" if notes else ""
    if not rows:
        return f"<h3>Checks</h3><p>No check was run.</p>{listed}"
    heads = ["context", "check", "outcome", "expected and found"]
    return "<h3>Checks</h3>" + _table("", heads, rows, text_columns=4) + listed


def _kernels(compositions: Sequence[Composition]) -> str:
    parts = []
    for composition in compositions:
        if composition.unmapped:
            rows = [
                [
                    f'<bdi class="name">{escaped(u.name)}</bdi>',
                    f"{tidy(u.dispatches):,}",
                    f"{u.us:,.1f}",
                ]
                for u in composition.unmapped
            ]
            caption = f"{_label(composition)}: device work that no block owns, a step"
            parts.append(_table(caption, ["kernel", "dispatches", "us"], rows))
        if composition.kernels:
            largest = sorted(composition.kernels, key=lambda k: k.us, reverse=True)
            rows = [
                [
                    f'<bdi class="name">{escaped(kernel.name)}</bdi>',
                    escaped(kernel.block),
                    escaped(kernel.split) if kernel.split else ("yes" if kernel.shared else "no"),
                    f"{tidy(kernel.dispatches):,}",
                    f"{kernel.us:,.1f}",
                ]
                for kernel in largest[:_MAX_KERNELS]
            ]
            heads = ["kernel", "block", "name shared", "dispatches", "us"]
            shown = f"the {len(rows)} largest of {len(largest)} kernels, a step"
            parts.append(
                f"<details><summary>{_label(composition)}: {shown}</summary>"
                f"{_table('', heads, rows, text_columns=3)}</details>"
            )
    return "".join(parts)


def _sources(compositions: Sequence[Composition]) -> str:
    rows = [
        [
            _label(composition),
            composition.method,
            f'<bdi class="name">{escaped(source.name)}</bdi>',
            f'<span class="name">{escaped(source.sha256)}</span>',
            f"{source.size_bytes:,}",
        ]
        for composition in compositions
        for source in composition.sources
    ]
    heads = ["context", "kernels found their block by", "trace", "SHA-256", "bytes"]
    return "<h2>Traces</h2>" + _table("", heads, rows, text_columns=4)


def _table(
    caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]], text_columns: int = 1
) -> str:
    """``heads`` are escaped here, cells and caption must be; past ``text_columns``, numbers."""

    def kind(column: int) -> str:
        return "" if column < text_columns else ' class="n"'

    head = "".join(f'<th scope="col"{kind(n)}>{escaped(h)}</th>' for n, h in enumerate(heads))
    body = "".join(
        "<tr>" + "".join(f"<td{kind(n)}>{cell}</td>" for n, cell in enumerate(row)) + "</tr>"
        for row in rows
    )
    shown = f"<caption>{caption}</caption>" if caption else ""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="table"><table>{shown}'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _label(composition: Composition) -> str:
    tokens = composition.input_tokens
    count = "" if tokens is None else f" ({tokens:,} tokens)"
    return f"<bdi>{escaped(composition.label, 60)}</bdi>{count}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(escaped(name, 80) for name in dict.fromkeys(names))


def _ms(us: float) -> str:
    return milliseconds(us).removesuffix(" ms")
