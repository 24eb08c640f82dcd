"""Limits of the device that depend on the arguments of a call, whether or not the call would lower."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._ops import OpOverload

LARGEST_SORT = 16_384
"""Elements of the sorted dimension that the device sorts; ``topk`` must ask for fewer."""

Arguments = Mapping[str, Any]
Limit = Callable[[Arguments], str | None]


def over_limit(op: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
    """Return why this call is beyond a limit, or ``None``. Integers may be symbolic; what is read is pinned."""
    limit = _LIMITS.get(packet_name(op))
    return None if limit is None else limit(bind(op, args, kwargs))


def is_limited(op: OpOverload) -> bool:
    """Return whether some call of ``op`` is beyond a limit."""
    return packet_name(op) in _LIMITS


def packet_name(op: OpOverload) -> str:
    """Return the name without the overload: ``aten::sort``."""
    return str(op._schema.name)


def bind(op: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by name, defaults included."""
    schema = op._schema.arguments
    bound = {argument.name: argument.default_value for argument in schema if argument.has_default_value()}
    bound |= {argument.name: value for argument, value in zip(schema, args, strict=False)}
    return bound | dict(kwargs)


def _sort(arguments: Arguments) -> str | None:
    tensor, dim = arguments["self"], arguments.get("dim", -1)
    if not isinstance(tensor, torch.Tensor) or not isinstance(dim, int) or tensor.dim() == 0:
        return None
    size = int(tensor.shape[dim])
    if size <= LARGEST_SORT:
        return None
    return f"the sorted dimension has {size} elements, and the limit is {LARGEST_SORT}"


def _topk(arguments: Arguments) -> str | None:
    k = int(arguments["k"])
    return f"k is {k}, and the limit is {LARGEST_SORT - 1}" if k >= LARGEST_SORT else None


def _always(_: Arguments) -> str | None:
    return "the device has no grouped matrix product"


_LIMITS: dict[str, Limit] = {
    "aten::sort": _sort,
    "aten::argsort": _sort,
    "aten::topk": _topk,
    "aten::kthvalue": _topk,  # lowers by way of topk
    "aten::_grouped_mm": _always,
    "aten::_scaled_grouped_mm": _always,
    "aten::_scaled_grouped_mm_v2": _always,
}
