"""The runner's tests use the manifest readers' fake machines."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "manifests"))
