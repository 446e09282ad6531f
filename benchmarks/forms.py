"""Attention forms, each in the ways that give the same numbers: which way is faster, and on what.

``Ways`` is measured on this machine; ``WaysOnV6e`` is what XLA makes of the same definitions for a
TPU v6e that is not here. Small sizes, float32: definitions, no kernels.
"""

from benchmarks._forms import compiled_case, form_experiment
from benchmarks._points import by_preset
from k3bench.asv_compiled import UNITS, CompiledCase, track, warm_up
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
    """The same, compiled: NaN for a way that a form does not have.

    Kept in the ledger as every compiled point is: the compiler's figures, and the modelled time
    with its distance from the roofline.
    """

    version = "1"
    timeout = 1800
    param_names = ("form", "implementation")
    params = (
        by_preset(smoke=("mla-decode",), full=tuple(PROBLEMS)),
        by_preset(smoke=("absorbed",), full=WAYS),
    )

    def _case(self, form: str, implementation: str) -> CompiledCase:
        name = f"forms.{type(self).__name__}.track_modelled_ms"
        return compiled_case(form, implementation, name, self.version)

    def setup_cache(self) -> None:
        forms, ways = self.params
        warm_up([self._case(form, way) for form in forms for way in ways])

    setup_cache.timeout = 3600

    def track_modelled_ms(self, form: str, implementation: str) -> float:
        return track(self._case(form, implementation), "modelled_ms")

    def track_hbm_bytes(self, form: str, implementation: str) -> float:
        return track(self._case(form, implementation), "hbm_bytes")

    track_modelled_ms.unit = UNITS["modelled_ms"]
    track_hbm_bytes.unit = UNITS["hbm_bytes"]
