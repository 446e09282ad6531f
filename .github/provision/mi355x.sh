#!/usr/bin/env bash
# Builds the runner's image on an MI355X host from a base that is named by its digest, and checks it.
#
#   bash .github/provision/mi355x.sh REPOSITORY@sha256:DIGEST
set -euo pipefail
base=${1:?the production ROCm image, as REPOSITORY@sha256:DIGEST}
root=$(cd "$(dirname "$0")/../.." && pwd)

[[ "$base" =~ @sha256:[0-9a-f]{64}$ ]] || {
  echo "$base: name the image by its digest (docker image inspect --format '{{index .RepoDigests 0}}')" >&2
  exit 64
}
[[ -e /dev/kfd && -d /dev/dri ]] || {
  echo "no /dev/kfd or /dev/dri: load the amdgpu driver" >&2
  exit 69
}
docker build -f "$root/.github/provision/mi355x.Dockerfile" --build-arg "BASE=$base" \
  -t k3bench-mi355x "$root"

install -d -m 1777 /run/k3bench-locks
docker run --rm --device=/dev/kfd --device=/dev/dri --group-add video --group-add render \
  --ipc=host --security-opt seccomp=unconfined \
  -v /run/k3bench-locks:/run/k3bench-locks -v "$root:/suite" -w /suite k3bench-mi355x \
  bash -c 'echo "K3BENCH_CI_PYTHON=$(command -v python3)   # into the runner'"'"'s .env file" &&
    python3 -m k3bench.runner.measured_device mi355x'
