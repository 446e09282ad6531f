"""What an implementation is: a name, who can run it and why not, and how to bind it to inputs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

PLATFORMS = ("cpu", "cuda", "rocm")


@dataclass(frozen=True)
class Outputs:
    """What every MLA kernel returns.

    Attributes:
        o: decode [B, H, 512], in latent space; prefill [T, H, 128]. In the inputs' dtype.
        lse: decode [B, H], prefill [T, H], float32: the natural log of the sum of exponentials of
            the scaled scores; -inf where there was no key (and o is 0).
    """

    o: Tensor
    lse: Tensor


@dataclass(frozen=True)
class Support:
    """Whether an implementation can run a case on a platform, and if not, why."""

    ok: bool
    reason: str = ""


@dataclass(frozen=True)
class Bound:
    """An implementation prepared for one set of inputs.

    Attributes:
        fn: runs the kernel once and returns all its outputs (``Outputs``, or ``KdaDecodeOutputs``
            from a KDA decode step). What depends on sequence lengths
            alone (split bounds, work lists) was computed when binding, as a serving engine does
            once a step for all layers; block-table look-ups and everything after are in ``fn``.
        executed_tokens: tokens that one run computes, padding included, in the unit of the case's
            ``tokens``: cached tokens for decode, new tokens for prefill.
        in_place: each run advances a state that was copied when binding: the first run's outputs
            are those of the inputs, later ones do the same work on later states.
    """

    fn: Callable[[], Any]
    executed_tokens: int
    in_place: bool = False


@dataclass(frozen=True)
class Implementation:
    """One kernel.

    Attributes:
        name: its key in the table.
        operation: ``decode``, ``prefill`` or ``kda_decode``.
        summary: one line on what it does.
        can_run: (platform, case) to Support; platform is ``cpu``, ``cuda`` or ``rocm``. Answers
            for this machine's installation and touches no device.
        bind: the operation's inputs (``MlaDecodeInputs``, ``MlaPrefillInputs`` or
            ``KdaDecodeInputs``) to Bound. Bounds share the inputs' tensors; run on the inputs'
            device.
    """

    name: str
    operation: Literal["decode", "prefill", "kda_decode"]
    summary: str
    can_run: Callable[[str, Any], Support]
    bind: Callable[[Any], Bound]
