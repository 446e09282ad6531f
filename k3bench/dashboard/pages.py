"""The pages' HTML: one skeleton, filled with what is constant; all content comes by script."""

from dataclasses import dataclass
from html import escape

# Nothing but our own files. Style attributes are plotly's; the hash is that of an empty style
# element, which plotly makes and fills through the object model. Neither can load or run anything.
_EMPTY_STYLE = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        f"style-src 'self' {_EMPTY_STYLE}",
        "style-src-attr 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "base-uri 'none'",
        "form-action 'none'",
    )
)


@dataclass(frozen=True)
class Page:
    """One page: file, name in the navigation, heading, what it answers, scripts of its own."""

    file: str
    name: str
    heading: str
    question: str
    charts: bool = True
    parts: tuple[str, ...] = ()

    @property
    def script(self) -> str:
        """The asset that fills the page."""
        return f"page_{self.file.removesuffix('.html')}.js"


PAGES = (
    Page("index.html", "Overview", "Kernel results",
         "What the ledger holds, by kind, device and commit.", charts=False),
    Page("latency.html", "Latency", "KDA prefill latency",
         "Latency over batch size, a panel a sequence length; ShareGPT-derived replays apart."),
    Page("speedup.html", "Speed-up", "KDA prefill speed-up",
         "How much faster one implementation is than another, over the whole grid."),
    Page("ablation.html", "Ablation", "Ablation of the ladder",
         "What every rung of the ladder saves, by workload."),
    Page("schedule.html", "Schedule", "The compiler's schedule",
         "Where the scheduled cycles go, and how full every slot is."),
    Page("mla.html", "MLA bandwidth", "MLA decode bandwidth",
         "Bytes a second over the latent cache, against the device's roof."),
    Page("roofline.html", "Roofline", "Distance from the roofline",
         "How many times the time that nothing beats every kernel takes, and what sets that time.",
         parts=("roofline_k3.js",)),
    Page("composition.html", "Composition", "Composition of decode and prefill",
         "Which blocks of the model a step's device time belongs to."),
    Page("model.html", "Model", "Model against published",
         "How far modelled times stand from published ones."),
    Page("history.html", "History", "History over commits",
         "Any series over all commits, with its change points."),
    Page("point.html", "Point", "One result",
         "Samples, percentiles, manifest, and how to measure it again.", parts=("manifest.js",)),
)  # fmt: skip


def page_html(page: Page, plotly_style_id: str | None, *, explorer: bool) -> str:
    """The page's file.

    Args:
        page: which.
        plotly_style_id: see ``build.plotly_script``.
        explorer: whether asv's own pages lie in the directory above, to be linked to.
    """
    up = '\n        <li><a href="../index.html">Explorer (asv)</a></li>' if explorer else ""
    links = "\n".join(
        f'        <li><a href="{other.file}"{_current(other, page)}>{escape(other.name)}</a></li>'
        for other in PAGES
    )
    scripts = [
        "core.js",
        *(("theme.js", "figure.js") if page.charts else ()),
        "view.js",
        *page.parts,
    ]
    if page.charts:
        scripts.insert(0, "plotly.min.js")
    tags = "\n".join(
        f'    <script defer src="assets/{name}"></script>' for name in (*scripts, page.script)
    )
    placeholder = (
        f'    <template id="{plotly_style_id}"></template>\n'
        if page.charts and plotly_style_id
        else ""
    )
    return f"""<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta http-equiv="Content-Security-Policy" content="{CONTENT_SECURITY_POLICY}">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <meta name="color-scheme" content="light dark">
    <title>{escape(page.heading)} - K3Bench</title>
    <link rel="icon" href="assets/icon.svg" type="image/svg+xml">
    <link rel="stylesheet" href="assets/style.css">
{tags}
  </head>
  <body>
{placeholder}    <a class="skip" href="#main">Skip to content</a>
    <header>
      <p class="brand"><a href="index.html">K3Bench</a></p>
      <nav aria-label="Pages">
      <ul>
{links}{up}
      </ul>
      </nav>
    </header>
    <main id="main">
      <h1>{escape(page.heading)}</h1>
      <p class="question">{escape(page.question)}</p>
      <div id="page"><p id="status" role="status">Loading ...</p></div>
      <noscript><p>These pages draw their figures with scripts; the same numbers are printed by
      <code>k3bench results</code>.</p></noscript>
    </main>
  </body>
</html>
"""


def _current(other: Page, page: Page) -> str:
    return ' aria-current="page"' if other is page else ""
