# An MI355X runner's environment: the production ROCm image, with the suite's dependencies added.
#
# The base image holds ROCm, torch for it and the production Triton; none of the three is replaced.
# It has no default, because a tag moves. Pin the digest of the image that serves in production:
#
#   docker pull REPOSITORY:TAG
#   docker image inspect --format '{{index .RepoDigests 0}}' REPOSITORY:TAG
#   docker build -f .github/provision/mi355x.Dockerfile --build-arg BASE=REPOSITORY@sha256:... .
ARG BASE
FROM ${BASE}

# What the image came with is what is measured: kept, and checked again at the end.
RUN python3 -c "import torch, triton; assert torch.version.hip, 'this torch is no ROCm build'; \
    open('/etc/k3bench-base', 'w').write(f'{torch.__version__} {triton.__version__}')"

RUN apt-get update && apt-get install -y --no-install-recommends git make \
    && rm -rf /var/lib/apt/lists/* \
    # The checkout is mounted from the host and belongs to another user there.
    && git config --system --add safe.directory '*'

WORKDIR /opt/k3bench
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY .github/provision/rocm_constraints.py .github/provision/
# Everything of constraints.txt but what the image provides; torch and triton stay as they are.
RUN python3 .github/provision/rocm_constraints.py constraints.txt pyproject.toml . \
    && python3 -m pip install --no-cache-dir -c constraints-rocm.txt -r requirements-rocm.txt \
    && python3 -c "import torch, triton; \
    assert open('/etc/k3bench-base').read() == f'{torch.__version__} {triton.__version__}', \
    'the installation replaced torch or triton'"

# Lock files of devices are shared by every container of the host: mount a directory here.
ENV K3BENCH_LOCK_DIR=/run/k3bench-locks
VOLUME /run/k3bench-locks
CMD ["bash"]
