"""Helpers of ``torch.compile(backend="neuron")``: names, rank, metrics, exceptions.

The door to the compile extra; without it every name but the exceptions raises an error with the install line.
"""

from typing import Any

from torch_neuronx import extras
from torch_neuronx.errors import NEFFCompilationError, NEFFExecutionError

_HELPERS = (
    "NeuronCompilationMetrics",
    "get_dynamo_metrics",
    "get_model_name",
    "get_rank",
    "reset_dynamo_metrics",
    "set_model_name",
)

__all__ = ["NEFFCompilationError", "NEFFExecutionError", *_HELPERS]


def __getattr__(name: str) -> Any:
    if name in _HELPERS:
        helpers = extras.load("compile", "torch_neuronx_compile.helpers", f"torch_neuronx.neuron_dynamo_backend.{name}")
        return getattr(helpers, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
