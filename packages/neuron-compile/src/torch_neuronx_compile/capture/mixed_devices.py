"""Calls on tensors of the device and of the CPU, which eager mode refuses: said in eager mode's words."""

from collections.abc import Iterator
from typing import Any

import torch
from torch._ops import OpOverload

TYPE = "Tensor device mismatch"
"""The type of the graph break; Dynamo's own name for it."""

HINTS = ["Move inputs, parameters and buffers to the same device before the call."]


def describe(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Return what eager mode says of the first argument that is not on the device, ``None`` if all are.

    A CPU tensor without dimensions counts as a number. Some operators take arguments from the CPU, so that a sentence
    does not mean that the call is refused.
    """
    device = next((tensor.device for _, tensor in _tensors(op, args, kwargs) if tensor.device.type == "neuron"), None)
    if device is None:
        return None
    for name, tensor in _tensors(op, args, kwargs):
        if tensor.device.type != "neuron" and tensor.dim() > 0:
            schema = op._schema
            overload = f".{schema.overload_name}" if schema.overload_name else ""
            return (
                f"{schema.name}{overload}: argument '{name}' is on {tensor.device} device, expected {device}. "
                f"Move it there with .to('{device}')."
            )
    return None


def _tensors(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    named = [(argument.name, value) for argument, value in zip(op._schema.arguments, args, strict=False)]
    for name, value in (*named, *kwargs.items()):
        for one in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(one, torch.Tensor):
                yield name, one
