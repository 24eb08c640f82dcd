"""Naming and rank: see :mod:`torch_neuronx.neuron_dynamo_backend`."""

from typing import Any

from torch_neuronx import neuron_dynamo_backend

__all__ = ["get_model_name", "get_rank", "set_model_name"]  # noqa: F822 - loaded on first use


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(neuron_dynamo_backend, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
