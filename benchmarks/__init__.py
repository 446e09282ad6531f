"""The asv suite: which workload, which kernels, which measurement. Thin on purpose.

Importing it registers the ``device_*`` benchmark type with asv and touches no device, so that asv's
fork server can import it once for all points.
"""

import os
import warnings

from k3bench.asv_type import register
from k3bench.orphans import die_with_parent

register()

if os.environ.get("ASV") == "true":
    # A killed run must not leave its fork server behind.
    die_with_parent()

# The fork server forks before any device client exists, which is the case that is safe.
warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called", category=RuntimeWarning)
