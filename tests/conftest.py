"""Settings that every test shares: the CPU platform, and helper modules on the import path."""

import os
import sys
from pathlib import Path

# Before jax is imported anywhere: tests run on the CPU, with libtpu at most as a compiler.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")

sys.path.insert(0, str(Path(__file__).parent))
