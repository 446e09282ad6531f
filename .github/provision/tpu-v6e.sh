#!/usr/bin/env bash
# Makes a fresh TPU v6e VM (Ubuntu 22.04 or newer, x86-64) a runner: pinned Python environment, user,
# a check. Run as root, from a checkout: bash .github/provision/tpu-v6e.sh [PREFIX]
# Registering the GitHub runner itself (label tpu-v6e) is in docs/runners.md: it needs a token.
set -euo pipefail
prefix=${1:-/opt/k3bench}
python=${PYTHON:-python3}
root=$(cd "$(dirname "$0")/../.." && pwd)
user=k3bench

[[ $EUID -eq 0 ]] || { echo "run as root: packages and a user are made" >&2; exit 64; }
ls /dev/accel* /dev/vfio/[0-9]* > /dev/null 2>&1 || {
  echo "no TPU device node (/dev/accel*, /dev/vfio/N): is this a TPU VM?" >&2
  exit 69
}

apt-get update
apt-get install -y --no-install-recommends git make python3 python3-venv
"$python" -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' || {
  echo "$python is older than 3.11: install python3.11 and python3.11-venv, and set PYTHON" >&2
  exit 69
}

# The chip's nodes belong to a group that the runner's user is in; root is not needed to measure.
getent group tpu > /dev/null || groupadd --system tpu
id "$user" > /dev/null 2>&1 || useradd --system --create-home --groups tpu "$user"
printf '%s\n' 'KERNEL=="accel[0-9]*", GROUP="tpu", MODE="0660"' \
  'SUBSYSTEM=="vfio", GROUP="tpu", MODE="0660"' > /etc/udev/rules.d/99-k3bench-tpu.rules
udevadm control --reload
udevadm trigger
# libtpu maps the chip's memory and locks it.
printf '%s - memlock unlimited\n' "$user" > /etc/security/limits.d/k3bench.conf

"$python" -m venv "$prefix/venv"
"$prefix/venv/bin/pip" install --quiet -c "$root/constraints.txt" \
  --extra-index-url https://download.pytorch.org/whl/cpu torch
"$prefix/venv/bin/pip" install --quiet -c "$root/constraints.txt" \
  -r "$root/.github/provision/requirements-tpu-v6e.txt" "$root[tpu]"
# The suite is each job's checkout, which lies first on the path; only its dependencies stay here.
"$prefix/venv/bin/pip" uninstall --quiet --yes k3bench
chown -R "$user" "$prefix"

echo "K3BENCH_CI_PYTHON=$prefix/venv/bin/python   # into the runner's .env file"
cd "$root" && sudo -u "$user" "$prefix/venv/bin/python" -m k3bench.runner.measured_device tpu-v6e
