"""Static shapes: every NEFF has its own."""

from collections.abc import Sequence
from typing import Any

import torch

from torch_neuronx_compile._compat import free_unbacked_symbols, is_ragged, marked_dynamic, wants_dynamic_shapes
from torch_neuronx_compile.errors import StaticShapeError


def check_static(inputs: Sequence[Any] = ()) -> None:
    """Raise :class:`StaticShapeError` if a range of shapes was asked for, by any of PyTorch's ways, or is needed."""
    if wants_dynamic_shapes():
        raise _refusal("torch.compile(backend='neuron') was called with dynamic=True")
    if any(isinstance(value, torch.Tensor | torch.SymInt) and free_unbacked_symbols(value) for value in inputs):
        raise _refusal("shapes_spec, or mark_unbacked, leaves a size of an input open")
    if any(map(is_ragged, inputs)):
        raise StaticShapeError(
            "An argument is a nested tensor, whose ragged dimension has no one size, and a NEFF has static shapes. Pad "
            "it with torch.nested.to_padded_tensor, or keep what takes it out of the compiled function."
        )
    marked = marked_dynamic()
    if marked is not None:
        raise _refusal(f"mark_dynamic, or shapes_spec, was applied to the input {marked}")


def _refusal(what: str) -> StaticShapeError:
    return StaticShapeError(
        f"{what}, and a NEFF has static shapes. Leave it out: each new shape then compiles once. To compile less "
        "often, pad inputs to a few shapes."
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
