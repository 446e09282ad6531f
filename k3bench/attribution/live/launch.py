"""Starts a server with the ranges armed: `python -m k3bench.attribution.live.launch -- COMMAND`.

SGLANG_K3_PROF_RANGES=1 arms them in the server and in every worker it spawns, through PYTHONPATH;
without it the command runs exactly as it would have without us. Nothing of the server is patched on
disk. The launcher replaces itself by the command, so signals and the exit code are the server's.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from k3bench.attribution.live.ranges import (
    K3_RULES,
    RULES_VARIABLE,
    SWITCH_VARIABLE,
    RangeRule,
    RangesError,
    format_rules,
    parse_rules,
    ranges_enabled,
)

USAGE = 64
NO_INPUT = 66
_INJECT = Path(__file__).resolve().parent / "inject"


def launch_environment(
    environ: Mapping[str, str], rules: Sequence[RangeRule] = K3_RULES
) -> dict[str, str]:
    """The environment for the server: unchanged where the ranges are switched off."""
    variables = dict(environ)
    if not ranges_enabled(environ):
        return variables
    earlier = variables.get("PYTHONPATH")
    variables["PYTHONPATH"] = f"{_INJECT}{os.pathsep}{earlier}" if earlier else str(_INJECT)
    variables[RULES_VARIABLE] = format_rules(rules)
    return variables


def main(arguments: Sequence[str] | None = None) -> int:
    """Becomes the command; returns only if that is impossible, with 64 or 66."""
    parser = argparse.ArgumentParser(
        prog="python -m k3bench.attribution.live.launch", description=__doc__, exit_on_error=False
    )
    parser.add_argument(
        "--rule",
        action="append",
        default=[],
        metavar="CLASS=RANGE",
        help="instead of Kimi K3's classes; may be repeated",
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    try:
        options = parser.parse_args(arguments)
        command = options.command[1:] if options.command[:1] == ["--"] else options.command
        if not command:
            raise RangesError("no command given: end with `-- python -m sglang.launch_server ...`")
        rules = parse_rules(",".join(options.rule)) if options.rule else K3_RULES
        environment = launch_environment(os.environ, rules)
    except (RangesError, argparse.ArgumentError) as error:
        print(f"k3bench: error: {error}", file=sys.stderr)
        return USAGE
    if shutil.which(command[0]) is None:
        print(f"k3bench: error: {command[0]}: no such command", file=sys.stderr)
        return NO_INPUT
    armed = format_rules(rules) if ranges_enabled() else f"off ({SWITCH_VARIABLE} is not 1)"
    print(f"k3bench: ranges: {armed}", file=sys.stderr, flush=True)
    os.execvpe(command[0], command, environment)


if __name__ == "__main__":
    sys.exit(main())
