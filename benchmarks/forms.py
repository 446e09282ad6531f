"""Attention forms, each in the ways that give the same numbers: which way is faster, and on what.

``Ways`` is measured on this machine; ``WaysOnV6e`` is what XLA makes of the same definitions for a
TPU v6e that is not here. Small sizes, float32: definitions, no kernels.
"""

import math

from benchmarks._forms import compiled_way, form_experiment
from benchmarks._points import by_preset
from k3bench.asv_compiled import UNITS
from k3bench.measure import Experiment
from k3bench.roofline.reference.ways import PROBLEMS, WAYS


class Ways:
    """One form, all of its ways interleaved."""

    version = "1"
    timeout = 1800
    param_names = ("form", "implementation")
    params = (
        by_preset(smoke=("mla-decode",), full=tuple(PROBLEMS)),
        by_preset(smoke=("decompressed", "absorbed"), full=WAYS),
    )

    def device_forms(self, form: str, implementation: str) -> Experiment:
        return form_experiment(form)


class WaysOnV6e:
    """The same, compiled: modelled time and HBM bytes; NaN for a way that a form does not have."""

    version = "1"
    timeout = 1800
    param_names = ("form", "implementation")
    params = (
        by_preset(smoke=("mla-decode",), full=tuple(PROBLEMS)),
        by_preset(smoke=("absorbed",), full=WAYS),
    )

    def setup_cache(self) -> dict[tuple[str, str], tuple[float, float]]:
        """Compiles every way once for both figures."""
        forms, ways = self.params
        results = {(form, way): compiled_way(form, way) for form in forms for way in ways}
        return {
            key: (math.nan, math.nan)
            if found is None
            else (float(found.modelled_ms or math.nan), float(found.hbm_bytes or math.nan))
            for key, found in results.items()
        }

    setup_cache.timeout = 3600

    def track_modelled_ms(
        self, figures: dict[tuple[str, str], tuple[float, float]], form: str, implementation: str
    ) -> float:
        return figures[form, implementation][0]

    def track_hbm_bytes(
        self, figures: dict[tuple[str, str], tuple[float, float]], form: str, implementation: str
    ) -> float:
        return figures[form, implementation][1]

    track_modelled_ms.unit = UNITS["modelled_ms"]
    track_hbm_bytes.unit = UNITS["hbm_bytes"]
