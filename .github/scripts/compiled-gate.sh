#!/usr/bin/env bash
# Compiles base and head with the suite of this checkout, judges head, and writes the verdict.
#
#   BASE_SHA, HEAD_SHA     what the pull request joins; base is where head left it (merge base)
#   K3BENCH_GATE_BENCH     which benchmarks (default: the compiled tier)
#   GATE_MARKDOWN          where the verdict goes (default: gate.md)
#   GITHUB_STEP_SUMMARY    the job's summary, which gets it too
#
# Exit code: the gate's. 0 good; 1 something is worse, wrong or missing; 2 could not judge.
set -uo pipefail
bench=${K3BENCH_GATE_BENCH:-^compiled_}
markdown=${GATE_MARKDOWN:-gate.md}
export K3BENCH_DB=${K3BENCH_DB:-${RUNNER_TEMP:-/tmp}/k3bench-gate.sqlite}

base=$(git merge-base "$BASE_SHA" "$HEAD_SHA") || {
  echo "::error::no merge base of $BASE_SHA and $HEAD_SHA: fetch the whole history"
  exit 2
}
head=$(git rev-parse --verify "$HEAD_SHA^{commit}") || exit 2
if [[ "$base" == "$head" ]]; then
  echo "Nothing to judge: the pull request adds no commit." | tee "$markdown"
  exit 0
fi

for commit in "$base" "$head"; do
  echo "::group::compile ${commit:0:12}"
  python -m k3bench run --preset smoke --bench "$bench" --commits "$commit"
  # What is wrong or missing is in the ledger, and is the gate's to weigh against the other side.
  echo "k3bench run ended with $?"
  echo "::endgroup::"
done

python -m k3bench gate "$base" "$head" --kind compiled --markdown > "$markdown"
verdict=$?
[[ -s "$markdown" ]] || echo "The gate could not judge (exit code $verdict)." > "$markdown"
cat "$markdown"
cat "$markdown" >> "${GITHUB_STEP_SUMMARY:-/dev/null}"
exit "$verdict"
