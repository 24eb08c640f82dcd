"""Compute nothing where there is nothing to compute: conversions and XLA trip over tensors without elements."""

import torch
from torch import fx

from torch_neuronx_compile.passes.emit import Emitter

aten = torch.ops.aten


def fill_empty(graph: fx.Graph) -> None:
    """Replace every call whose result has no elements by a constant of its shape."""
    for node in list(graph.nodes):
        value = node.meta.get("val")
        if node.op != "call_function" or not isinstance(value, torch.Tensor) or value.numel():
            continue
        node.target = aten.full.default
        node.args = ([int(extent) for extent in value.shape], 0)
        node.kwargs = {"dtype": value.dtype, "device": value.device}
        if value.dtype is torch.uint8:  # torch-mlir has no constants of it, and makes one of a converted constant
            node.kwargs = {"dtype": torch.float32, "device": value.device}
            node.meta["val"] = value.to(torch.float32)
            emit = Emitter(graph, node.next)
            computed = emit(aten.cos.default, node)
            converted = emit(torch.ops.prims.convert_element_type.default, computed, torch.uint8)
            node.replace_all_uses_with(converted, delete_user_cb=lambda user, first=computed: user is not first)
    graph.eliminate_dead_code()
