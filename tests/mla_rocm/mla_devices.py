"""The devices that the shared test bodies run on: the CPU, and a GPU where torch finds one."""

import torch

DEVICES = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)


def tensors_of(inputs) -> dict[str, torch.Tensor]:
    """The tensor fields of an inputs dataclass by name."""
    return {name: value for name, value in vars(inputs).items() if isinstance(value, torch.Tensor)}
