"""Two sides of a ledger into a report: what is missing, wrong, incomparable, worse or better."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from k3bench.gate.comparability import LoadManifest, Pairer, Pairing, Unlike, names
from k3bench.gate.decide import judge_measured
from k3bench.gate.exact import changed_figures, decided_by, is_worse
from k3bench.gate.levels import Measured
from k3bench.gate.report import Finding, Report, Weight
from k3bench.gate.select import Point, Row, Side
from k3bench.gate.settings import Settings
from k3bench.gate.verdicts import MeasuredVerdicts, PointVerdict

Repeats = Mapping[Point, Mapping[str, list[float]]]

ACCEPTED = "accepted by name"
_BROKEN = ("failed", "wrong")
_OUTCOME_OF: Mapping[str, Weight] = {
    "slower": "fails",
    "suspected": "cannot judge",
    "too few samples": "cannot judge",
    "faster": "informs",
    "unchanged": "informs",
}


@dataclass(frozen=True)
class Rules:
    """What the user allowed or asked for by name.

    ``allowed``: differences of environment to overlook. ``accepted``: figures that may get worse.
    ``fail_modelled``: let modelled times fail, too.
    """

    settings: Settings = field(default_factory=Settings)
    allowed: Collection[str] = ()
    accepted: Collection[str] = ()
    fail_modelled: bool = False


def environments_of(base: Side, head: Side) -> set[str]:
    """Fingerprints under which either side was measured."""
    return {
        row.fingerprint
        for side in (base, head)
        for point, rows in side.items()
        if point.kind == "measured"
        for row in rows
        if row.fingerprint is not None
    }


def compare(
    sides: tuple[str, str],
    base: Side,
    head: Side,
    repeats: Repeats,
    load: LoadManifest,
    rules: Rules,
) -> Report:
    """Judge ``head`` against ``base``.

    ``sides``: what to call them. ``repeats``: log medians of repeated runs by point and commit
    (select.repeated_medians). ``load``: a manifest by its id.
    """
    pairer = Pairer(load, rules.allowed)
    findings: list[Finding] = []
    measured: list[tuple[Point, Pairing]] = []
    differences: dict[Unlike, None] = {}
    compared = 0
    here = {_stratum(point) for point in base} & {_stratum(point) for point in head}
    for point in sorted({*base, *head}, key=_order):
        if _stratum(point) not in here:
            continue
        before, after = base.get(point), head.get(point)
        broken = _broken(point, before, after)
        if broken is not None:
            findings.append(broken)
        if broken is not None or before is None or after is None:
            continue
        pairing = pairer.pair(point.kind, _right(before), _right(after))
        differences.update(dict.fromkeys(pairing.unlike))
        if pairing.refused:
            fields = [unlike.field for unlike in pairing.unlike if not unlike.allowed]
            findings.append(
                Finding(point, "all", "incomparable", "cannot judge", detail=_some(fields))
            )
            continue
        compared += 1
        if point.kind == "measured":
            measured.append((point, pairing))
            findings += _beside_time(point, pairing, rules)
        else:
            findings += _figures(point, pairing, rules)
    times, verdicts = _times(measured, repeats, rules.settings)
    return Report(
        base=sides[0],
        head=sides[1],
        settings=rules.settings,
        findings=sorted([*times, *findings], key=_gravest_first),
        families=verdicts.families,
        together=verdicts.together,
        differences=list(differences),
        notes=[*_notes(head, base, here), *_unmet(findings, differences, rules)],
        compared=compared,
        unjudged_strata=_unjudged(base, here),
    )


def _stratum(point: Point) -> tuple[str, str, str]:
    return (point.kind, point.device, point.preset or "")


def _order(point: Point) -> tuple[str, ...]:
    where = (point.benchmark, point.parameters, point.implementation, point.further_clock or "")
    return (*_stratum(point), *where)


def _gravest_first(finding: Finding) -> tuple[object, ...]:
    weight = ("fails", "cannot judge", "informs").index(finding.weight)
    quiet = finding.outcome == "unchanged" or finding.explains
    return (weight, quiet, -finding.size, _order(finding.point), finding.metric)


def _right(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.status not in _BROKEN]


def _broken(point: Point, base: Sequence[Row] | None, head: Sequence[Row] | None) -> Finding | None:
    """The finding of a point that has no two right results to compare; None if it has."""
    if head is None:
        return Finding(point, "all", "missing", "fails", detail="HEAD has no result of it")
    for status in _BROKEN:
        rows = [row for row in head if row.status == status]
        if rows:
            before = [row.status for row in base or ()]
            # A kernel that fails has nothing to show; one that was wrong before is no news.
            known = status == "wrong" and bool(before) and all(one == "wrong" for one in before)
            return Finding(
                point,
                "correctness",
                f"still {status}" if known else status,
                "informs" if known else "fails",
                base=", ".join(sorted(set(before))) or None,
                head=status,
                detail=rows[-1].detail,
            )
    if base is None:
        return Finding(point, "all", "new", "informs", head=head[-1].median_s)
    if not _right(base):
        before = sorted({row.status for row in base})
        return Finding(
            point, "correctness", "mended", "informs", base=", ".join(before), head=head[-1].status
        )
    return None


def _figures(point: Point, pairing: Pairing, rules: Rules) -> Iterable[Finding]:
    """Compiled and modelled figures: any change for the worse of a compiled one fails."""
    base, head = pairing.base[-1], pairing.head[-1]
    changed = changed_figures(base.figures, head.figures)
    for name in ("median_s", "padded_tokens", "max_abs_error"):
        before, after = getattr(base, name), getattr(head, name)
        if before != after:
            changed[name] = (before, after)
    may_fail = point.kind == "compiled" or rules.fail_modelled
    found = False
    for name, (before, after) in changed.items():
        found = True
        outcome, weight, detail = "changed", "informs", None
        gone = after is None and before is not None
        if isinstance(before, (int, float)) and isinstance(after, (int, float)):
            worse = _accuracy_worse(name, before, after, rules)
            whole = decided_by(name, base.figures, head.figures)
            if worse is not None and whole is None:
                outcome = "worse" if worse else "better"
            elif worse is not None:
                detail = f"{whole} decides"
        elif gone:
            outcome, detail = "worse", "HEAD no longer states it"
        if outcome == "worse" and may_fail:
            accepted = name in rules.accepted or name.rpartition(".")[2] in rules.accepted
            weight = "informs" if accepted else "fails"
            detail = ACCEPTED if accepted else detail
        yield Finding(point, name, outcome, _weight(weight), before, after, detail=detail)
    if not found:
        yield Finding(point, "figures", "unchanged", "informs")


def _weight(text: str) -> Weight:
    return "fails" if text == "fails" else "informs"


def _accuracy_worse(name: str, before: float, after: float, rules: Rules) -> bool | None:
    if name == "max_abs_error" and before < after <= before * rules.settings.accuracy_factor:
        return None
    return is_worse(name, float(before), float(after))


def _beside_time(point: Point, pairing: Pairing, rules: Rules) -> Iterable[Finding]:
    """What a measured record states exactly: tokens executed, and how far off the output is."""
    base, head = pairing.base[-1], pairing.head[-1]
    for name in ("padded_tokens", "max_abs_error"):
        before, after = getattr(base, name), getattr(head, name)
        if before is None or after is None or before == after:
            continue
        worse = _accuracy_worse(name, before, after, rules)
        if worse is None:
            continue
        accepted = worse and name in rules.accepted
        weight: Weight = "fails" if worse and not accepted else "informs"
        outcome = "worse" if worse else "better"
        detail = ACCEPTED if accepted else None
        yield Finding(point, name, outcome, weight, before, after, detail=detail)


def _times(
    measured: Sequence[tuple[Point, Pairing]], repeats: Repeats, settings: Settings
) -> tuple[list[Finding], MeasuredVerdicts]:
    # Samples taken in turns say more than any that were not; the two are not mixed.
    turns = [_in_turns(pairing) for _, pairing in measured]
    chosen = [
        (point, taken or pairing) for (point, pairing), taken in zip(measured, turns, strict=True)
    ]
    verdicts = judge_measured(
        [
            _as_measured(point, pairing, repeats, taken is not None)
            for (point, pairing), taken in zip(chosen, turns, strict=True)
        ],
        settings,
    )
    findings = [
        _time(point, pairing, verdict)
        for (point, pairing), verdict in zip(chosen, verdicts.points, strict=True)
    ]
    return findings, verdicts


def _in_turns(pairing: Pairing) -> Pairing | None:
    """The rows whose samples alternated with the other side's, in pairs; None without any."""
    pairs = [
        (before, after)
        for before in pairing.base
        for after in pairing.head
        if before.run_id == after.run_id
        and before.in_turns_with is not None
        and (before.in_turns_with, after.in_turns_with) == (after.commit, before.commit)
        and len(before.samples_s) == len(after.samples_s)
    ]
    if not pairs:
        return None
    base, head = zip(*pairs, strict=True)
    return replace(pairing, base=base, head=head)


def _as_measured(point: Point, pairing: Pairing, repeats: Repeats, in_turns: bool) -> Measured:
    return Measured(
        point,
        [row.samples_s for row in pairing.base],
        [row.samples_s for row in pairing.head],
        () if in_turns else list(repeats.get(point, {}).values()),
        in_turns,
    )


def _time(point: Point, pairing: Pairing, verdict: PointVerdict) -> Finding:
    base, head = pairing.base[-1], pairing.head[-1]
    gain = None
    if base.tokens_per_s and head.tokens_per_s and verdict.ratio:
        # Tokens are the workload's, so throughput moves with time, the other way.
        held = (head.tokens_per_s * (head.median_s or 0)) / (
            base.tokens_per_s * (base.median_s or 1)
        )
        gain = held / verdict.ratio
    return Finding(
        point,
        "time_s",
        verdict.verdict,
        _OUTCOME_OF[verdict.verdict],
        base.median_s,
        head.median_s,
        gain,
        verdict,
        verdict.detail,
    )


def _some(fields: Sequence[str]) -> str:
    shown = ", ".join(fields[:4])
    return shown if len(fields) <= 4 else f"{shown} and {len(fields) - 4} more"


def _unjudged(base: Side, here: set[tuple[str, str, str]]) -> list[str]:
    lost = sorted({_stratum(point) for point in base} - here)
    return [
        f"HEAD has no {_named(stratum)} at all: measure it, or narrow the comparison "
        "(--kind, --device, --preset, --benchmark)"
        for stratum in lost
    ]


def _notes(head: Side, base: Side, here: set[tuple[str, str, str]]) -> list[str]:
    new = sorted({_stratum(point) for point in head} - here)
    return [f"BASE has no {_named(stratum)}: nothing to compare HEAD's with" for stratum in new]


def _unmet(
    findings: Iterable[Finding], differences: Iterable[Unlike], rules: Rules
) -> Iterable[str]:
    """Names that the user gave and that met nothing: a typing error would go unseen."""
    spared = {finding.metric for finding in findings if finding.detail == ACCEPTED}
    for name in rules.accepted:
        if not any(name in (metric, metric.rpartition(".")[2]) for metric in spared):
            yield f"--accept {name}: no figure of that name got worse"
    for name in rules.allowed:
        if not any(names(unlike.field, name) for unlike in differences):
            yield f"--allow-difference {name}: nothing of that name differs"


def _named(stratum: tuple[str, str, str]) -> str:
    kind, device, preset = stratum
    return f"{kind} figures on {device}" + (f" under preset {preset}" if preset else "")
