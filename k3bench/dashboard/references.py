"""What figures are held against: the order of the ladder, peaks of devices, the model's errors."""

from typing import Any

from k3bench.compiled.amdgpu.targets import GFX950
from k3bench.compiled.tpu.cost_model import fitted_model, judged_errors
from k3bench.compiled.tpu.targets import V6E
from k3bench.report.ladder import RUNGS


def ladder() -> tuple[str, ...]:
    """The KDA ladder's rungs, slowest first, as published."""
    return RUNGS


def roofs() -> dict[str, dict[str, Any]]:
    """Peak memory bandwidth in bytes a second by device, with its source."""
    return {
        GFX950.device: {
            "bytes_per_s": GFX950.hbm_bytes_per_s,
            "source": GFX950.sources["rates"],
        },
        V6E.device: {
            "bytes_per_s": V6E.hbm_bytes_per_s,
            "source": V6E.sources["hbm_bytes_per_s"],
        },
    }


def model_against_published() -> dict[str, Any]:
    """The cost model's relative error at each published point that it was judged on."""
    model = fitted_model()
    return {
        "mean_error": model.mean_error,
        "worst_error": model.worst_error,
        "points": [
            {"implementation": implementation, "shape": shape, "error": error}
            for point, error in sorted(judged_errors().items())
            for implementation, _, shape in [point.partition("/")]
        ],
    }
