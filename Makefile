# Two commands do everything: `make bench` (real results) and `make test`.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
# Where pip finds torch's small CPU build; unreachable is fine, pip then takes its default index's.
# On a ROCm runner: make TORCH_INDEX=https://download.pytorch.org/whl/rocm7.1 bench
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
# More arguments for asv run, e.g. make bench BENCH='--bench Headline'
BENCH ?=
EXTRAS ?= tpu,rocm,dev
PRESET ?= smoke
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: bench dashboard test lint snapshot clean help

help:
	@echo "make bench     measure HEAD's kernels on this machine (preset $(PRESET)): results.sqlite, html/"
	@echo "make dashboard asv publish, with pages that work offline, in html/"
	@echo "make test      run the test suite"
	@echo "make lint      ruff and mypy"
	@echo "make snapshot  rebuild the tracked results.sqlite from the latest runs"

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "k3bench: error: $(PYTHON) is older than Python 3.11; use make PYTHON=python3.11 ..." >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(PIP) install --quiet -c constraints.txt --timeout 15 --retries 2 \
	  --extra-index-url $(TORCH_INDEX) torch
	$(PIP) install --quiet -c constraints.txt -e '.[$(EXTRAS)]'
	@touch $@

# asv's exit code is kept (2: a benchmark failed), but the pages and the table are made all the same.
bench: $(INSTALLED)
	@$(BIN)/asv machine --yes >/dev/null
	@$(BIN)/k3bench ledger seed
	@status=0; \
	  K3BENCH_PRESET=$(PRESET) $(BIN)/asv run --record-samples $(BENCH) 'HEAD^!' || status=$$?; \
	  $(MAKE) --no-print-directory dashboard && \
	  $(BIN)/k3bench results --kind measured --commit HEAD --latest && \
	  $(BIN)/k3bench results --kind modelled --commit HEAD --latest && \
	  exit $$status

# asv's own pages load their scripts from the network; these carry theirs and work offline.
# The kernel pages come with `asv publish`, from the ledger (docs/dashboard.md).
dashboard: $(INSTALLED)
	$(BIN)/asv publish
	@$(BIN)/python -m k3bench.dashboard.explorer html

test: $(INSTALLED)
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

snapshot: $(INSTALLED)
	$(BIN)/python -m k3bench.ledger.snapshot --out results.sqlite

clean:
	rm -rf .venv .asv html .k3bench
