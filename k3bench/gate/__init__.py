"""The gate: did anything get worse between two commits of the ledger, or over many?

    report = compare(("main", "topic"), base, head, repeats, load, Rules())
    report.exit_code                            # 0 good, 1 worse, 2 could not judge
    history = find_changes(series, commits, threshold=0.01)

The rules, and how often they are right, stand in docs/gate.md.
"""

from k3bench.gate.compare import Rules, compare, environments_of
from k3bench.gate.decide import judge_measured
from k3bench.gate.errors import GateError
from k3bench.gate.levels import Measured
from k3bench.gate.report import Finding, Report
from k3bench.gate.select import Point, Row, Side
from k3bench.gate.settings import Settings
from k3bench.gate.verdicts import MeasuredVerdicts, PointVerdict

__all__ = [
    "Finding",
    "GateError",
    "Measured",
    "MeasuredVerdicts",
    "Point",
    "PointVerdict",
    "Report",
    "Row",
    "Rules",
    "Settings",
    "Side",
    "compare",
    "environments_of",
    "judge_measured",
]
