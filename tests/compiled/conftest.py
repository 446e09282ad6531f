"""Helper modules of this folder on the import path, for the tests and for their child processes."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
