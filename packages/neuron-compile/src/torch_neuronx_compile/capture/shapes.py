"""Static shapes: every NEFF has its own."""

from collections.abc import Sequence
from typing import Any

import torch

from torch_neuronx_compile._compat import wants_dynamic_shapes
from torch_neuronx_compile.errors import StaticShapeError


def check_static() -> None:
    """Raise :class:`StaticShapeError` if the compilation was asked for with ``dynamic=True``."""
    if wants_dynamic_shapes():
        raise StaticShapeError(
            "torch.compile(backend='neuron') was called with dynamic=True, and a NEFF has static shapes. Leave dynamic "
            "out: each new shape then compiles once. To compile less often, pad inputs to a few shapes."
        )


def specialise(inputs: Sequence[Any]) -> None:
    """Pin every symbolic size and number among ``inputs``: Dynamo compiles again for another value."""
    for value in inputs:
        if isinstance(value, torch.SymInt):
            int(value)
        elif isinstance(value, torch.SymFloat):
            float(value)
        elif isinstance(value, torch.Tensor):
            for extent in (*value.shape, *value.stride(), value.storage_offset()):
                int(extent)
