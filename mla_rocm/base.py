"""What an implementation is: a name, who can run it and why not, and how to bind it to inputs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor

STAGES = ("stage1", "stage2")

PLATFORMS = ("cpu", "cuda", "rocm")


@dataclass(frozen=True)
class Outputs:
    """What every MLA kernel returns.

    Attributes:
        o: decode [B, H, 512], in latent space; prefill [T, H, 128]. In the inputs' dtype.
        lse: decode [B, H], prefill [T, H], float32: the natural log of the sum of exponentials of
            the scaled scores; -inf where there was no key (and o is 0). None from a provider whose
            kernel keeps it to itself: ``o`` alone is judged then, and the verdict says so.
    """

    o: Tensor
    lse: Tensor | None


@dataclass(frozen=True)
class Partials:
    """What stage 1 of a split-KV decode leaves for stage 2.

    Attributes:
        o: [..., D] float32, each split's normalised output, splits along ``dim``.
        lse: o's shape without D, float32; -inf for a split that was not written, whose ``o`` may
            hold anything.
        dim: the dimension of splits: 1 of [B, splits, H], 2 of [B, H, splits].
    """

    o: Tensor
    lse: Tensor
    dim: int


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
        stages: of a split-KV decode, ``stage1`` (returns ``Partials``) and ``stage2`` (returns
            ``Outputs``, from what the last stage 1 left); one after the other they are ``fn``.
            Empty where the implementation has no stages.
    """

    fn: Callable[[], Any]
    executed_tokens: int
    in_place: bool = False
    stages: Mapping[str, Callable[[], Any]] = field(default_factory=dict)


def no_stages(platform: str, case: Any) -> Support:
    """``can_run_stages`` of an implementation that does its work in one pass."""
    del platform, case
    return Support(False, "one pass: it has no stages to time apart")


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
        can_run_stages: as ``can_run``, for the bound's ``stages``.
    """

    name: str
    operation: Literal["decode", "prefill", "kda_decode"]
    summary: str
    can_run: Callable[[str, Any], Support]
    bind: Callable[[Any], Bound]
    can_run_stages: Callable[[str, Any], Support] = no_stages
