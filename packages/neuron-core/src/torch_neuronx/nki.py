"""The door to the nki extra: kernels as PyTorch operators."""

from typing import Any

from torch_neuronx import extras


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(extras.load("nki", "torch_neuronx_nki", f"torch_neuronx.{name}"), name)
