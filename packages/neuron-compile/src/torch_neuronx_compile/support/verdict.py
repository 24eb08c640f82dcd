"""Whether one call can be part of a graph."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves

from torch_neuronx_compile import ops
from torch_neuronx_compile._compat import inside_another_rule
from torch_neuronx_compile.support.limits import bind, is_limited, over_limit
from torch_neuronx_compile.support.table import Support, changed_by_plugins, dispatcher_name, shipped

NO_LOWERING = "it has no lowering"
DEPENDS_ON_VALUES = "the shape of its result depends on the values of its inputs, and a NEFF has static shapes"
_NUMBER = "its result is a number on the host, which the device has yet to compute"
_POINT_TO_POINT = frozenset(f"_c10d_functional::{name}" for name in ("isend", "irecv", "batch_p2p_ops"))
"""Refused before they are traced: PyTorch drops sends, whose results nobody reads, from the graphs that it makes."""
_TORCHS_OWN = ("aten", "prims", "prim", ops.NAMESPACE)


def why_not(op: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
    """Return why this call, of fake tensors, cannot be compiled, or ``None`` if nothing is known against it."""
    known = _by_values(op, args, kwargs) or over_limit(op, args, kwargs)
    if known is not None:
        return known
    told = _by_table(op, args, kwargs)
    # Fake tensors evaluate some operators by others; a compiled graph holds the operator, not their steps.
    return None if told is None or inside_another_rule() else told


def may_break(op: OpOverload) -> bool:
    """Return whether :func:`why_not` may have something against a call of ``op``."""
    support = support_of(op)
    return (
        is_limited(op) or not set(op.tags).isdisjoint(_VALUE_TAGS) or support is None or support != Support(None, None)
    )


def support_of(op: OpOverload) -> Support | None:
    """Return what is known of ``op``: its own row, or for in-place and ``out=`` forms that of the functional form."""
    name = dispatcher_name(op)
    if name in changed_by_plugins():
        return None
    table = shipped()
    if name in table:
        return table[name]
    functional = _functional(op)
    if functional is not None and dispatcher_name(functional) not in changed_by_plugins():
        return table.get(dispatcher_name(functional))
    return None


_VALUE_TAGS = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}


def _by_values(op: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
    if torch.Tag.dynamic_output_shape in op.tags:
        bound = bind(op, args, kwargs)
        if "indices" in bound and not _has_mask(bound["indices"]):
            return None
        if bound.get("output_size") is not None:  # repeat_interleave with a known size
            return None
        return DEPENDS_ON_VALUES
    if torch.Tag.data_dependent_output not in op.tags:
        return None
    # Dynamo reads numbers of the program, which it wraps as tensors on the CPU, in this way.
    return _NUMBER if any(_on_device(value) for value in tree_leaves((args, dict(kwargs)))) else None


def _on_device(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type != "cpu"


def _has_mask(indices: Iterable[Any]) -> bool:
    return any(isinstance(i, torch.Tensor) and i.dtype in (torch.bool, torch.uint8) for i in indices)


def _by_table(op: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
    support = support_of(op)
    if support is None:
        return foreign(op)
    if support.forward is not None:
        return support.forward
    if support.backward is not None and torch.is_grad_enabled() and _takes_gradient(args, kwargs):
        return f"its gradient is needed, and {support.backward}"
    return None


def _takes_gradient(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    leaves = tree_leaves((args, dict(kwargs)))
    return any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves)


def foreign(op: OpOverload) -> str | None:
    """Answer for operators that are not PyTorch's: what no plugin lowers or decomposes has no lowering."""
    if dispatcher_name(op) in changed_by_plugins():
        return None
    if op.namespace in _TORCHS_OWN or op.namespace.startswith("_"):
        return NO_LOWERING if dispatcher_name(op) in _POINT_TO_POINT else None
    return NO_LOWERING


@cache
def _functional(op: OpOverload) -> OpOverload | None:
    """Return the form of ``op`` that neither writes to its arguments nor takes the place for its results."""
    if not op._schema.is_mutable:
        return None
    wanted = [str(argument.type) for argument in op._schema.arguments if not argument.is_out]
    name = op._opname
    packet = getattr(getattr(torch.ops, op.namespace), name.removesuffix("_") or name, None)
    if packet is None:
        return None
    for overload in packet.overloads():
        candidate: OpOverload = getattr(packet, overload)
        if not candidate._schema.is_mutable and [str(a.type) for a in candidate._schema.arguments] == wanted:
            return candidate
    return None
