"""The commands that measure a point again."""

import re
import shlex

from k3bench.dashboard.rows import Series


def asv_command(series: Series) -> str | None:
    """The plain asv command for a series' benchmark, with ``{commit}`` where the hash goes.

    None for a published figure, which nothing here can repeat.
    """
    if series.view.kind == "published":
        return None
    pattern = f"^{re.escape(series.benchmark)}\\b"
    preset = f"K3BENCH_PRESET={series.view.preset} " if series.view.preset else ""
    return f"{preset}asv run --record-samples --bench {shlex.quote(pattern)} '{{commit}}^!'"
