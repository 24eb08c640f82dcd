"""Replace integers and symbols among the inputs by their values: shapes are static by now."""

from typing import Any

import torch
from torch import fx
from torch.fx.node import map_aggregate

from torch_neuronx_compile._compat import free_unbacked_symbols


def specialise(graph: fx.Graph) -> None:
    """Write the value of every symbolic integer, float and bool into the calls that use it."""
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
    graph.eliminate_dead_code()


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
