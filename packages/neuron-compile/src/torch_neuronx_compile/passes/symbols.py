"""Replace integers and symbols, also in shapes, by their values: these are static by now."""

from typing import Any

import torch
from torch import fx
from torch.fx.node import map_aggregate
from torch.utils import _pytree as pytree

from torch_neuronx_compile._compat import detect_fake_mode, free_unbacked_symbols
from torch_neuronx_compile.memory_order import last_element


def specialise(graph: fx.Graph) -> None:
    """Write the value of every symbolic integer, float and bool into the calls that use it, and into what they give."""
    values: dict[fx.Node, Any] = {}

    def value(argument: Any) -> Any:
        if isinstance(argument, fx.Node):
            return values.get(argument, argument)
        return _plain(argument)

    for node in graph.nodes:
        known = node.meta.get("val")
        if isinstance(known, (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool)):
            values[node] = _plain(known)
        else:
            node.args = map_aggregate(node.args, value)
            node.kwargs = map_aggregate(node.kwargs, value)
            if known is not None:
                node.meta["val"] = pytree.tree_map(_static, known)
    graph.eliminate_dead_code()


def _static(value: Any) -> Any:
    """Return a fake tensor with numbers for symbols: memory that arguments share has symbols of its own."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return value
    offset = value.storage_offset()
    if not any(isinstance(number, torch.SymInt) for number in (*value.shape, *value.stride(), offset)):
        return value
    shape, strides = [*map(int, value.shape)], [*map(int, value.stride())]
    last = last_element(shape, strides, int(offset))
    mode = detect_fake_mode(value)
    assert mode is not None
    with mode:
        memory = torch.empty([max(last + 1, 0)], dtype=value.dtype, device=value.device)
        return memory.as_strided(shape, strides, int(offset))


def data_dependent(graph: fx.Graph) -> fx.Node | None:
    """Return the first node whose shape depends on the values of tensors, as in ``nonzero``."""
    for node in graph.nodes:
        if free_unbacked_symbols(node.meta.get("val")):
            found: fx.Node = node
            return found
    return None


def _plain(value: Any) -> Any:
    match value:
        case torch.SymInt():
            return int(value)
        case torch.SymFloat():
            return float(value)
        case torch.SymBool():
            return bool(value)
    return value
