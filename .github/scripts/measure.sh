#!/usr/bin/env bash
# Measures on a self-hosted runner and brings the points into the team's database.
#
#   DEVICE        what must be measured here: tpu-v6e or mi355x
#   BENCH         which benchmarks (a regular expression)
#   PRESET        of the protocol (default: device)
#   COMMITS       a commit or range to measure, or ...
#   BASE_SHA, HEAD_SHA   ... two commits to measure in turns and judge
#   K3BENCH_DB    the database; while it is away, points stay in .k3bench/runs and come in later
#
# Exit code: 0 good; 1 wrong or worse; 2 incomplete or not judged; 69 the database is still away.
set -uo pipefail
preset=${PRESET:-device}
summary=${GITHUB_STEP_SUMMARY:-/dev/null}

# What earlier jobs left while the database was away. Not a reason to keep the device idle.
python -m k3bench ledger sync || echo "::warning::the database is away; points stay on this runner"

found=$(python -m k3bench.runner.measured_device "$DEVICE") || {
  echo "::error::this runner measures $found, not $DEVICE: see k3bench doctor"
  exit 2
}

if [[ -n "${BASE_SHA:-}" && -n "${HEAD_SHA:-}" ]]; then
  base=$(git merge-base "$BASE_SHA" "$HEAD_SHA") || exit 2
  python -m k3bench ab --preset "$preset" --bench "$BENCH" "$base" "$HEAD_SHA"
  code=$?
else
  python -m k3bench run --preset "$preset" --bench "$BENCH" --commits "${COMMITS:-HEAD}"
  code=$?
fi

if ! python -m k3bench ledger sync; then
  echo "::error::the database is away; the points are kept on this runner and come in later"
  exit 69
fi
if [[ -n "${BASE_SHA:-}" && -n "${HEAD_SHA:-}" && "$code" -lt 64 ]]; then
  python -m k3bench gate "$base" "$HEAD_SHA" --kind measured --device "$DEVICE" \
    --preset "$preset" --markdown >> "$summary"
  code=$?
fi
exit "$code"
