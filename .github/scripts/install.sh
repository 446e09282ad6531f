#!/usr/bin/env bash
# Puts the suite's interpreter first on the job's PATH: the pinned environment of this checkout, or
# the one that K3BENCH_CI_PYTHON names (a provisioned runner's; nothing is installed then).
set -euo pipefail
if [[ -n "${K3BENCH_CI_PYTHON:-}" ]]; then
  bin=$(dirname "$K3BENCH_CI_PYTHON")
else
  make .venv/.installed
  bin="$PWD/.venv/bin"
fi
"$bin/python" -c 'import asv, k3bench, jax, torch'
echo "$bin" >> "$GITHUB_PATH"
