"""Fill memory that a graph leaves as it was found: a program has no such memory."""

import torch
from torch import fx

aten = torch.ops.aten
_UNINITIALIZED = (
    aten.empty.memory_format,
    aten.empty_like.default,
    aten.empty_strided.default,
    aten.empty_permuted.default,
    aten.new_empty.default,
    aten.new_empty_strided.default,
)


def fill_uninitialized(graph: fx.Graph) -> None:
    """Replace every tensor without values by zeros."""
    for target in _UNINITIALIZED:
        for node in graph.find_nodes(op="call_function", target=target):
            value = node.meta["val"]
            node.target = aten.full.default
            node.args = ([int(extent) for extent in value.shape], 0)
            node.kwargs = {"dtype": value.dtype, "device": value.device}
