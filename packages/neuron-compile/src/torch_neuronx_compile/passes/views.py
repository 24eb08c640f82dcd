"""Replace views that torch-mlir lacks by copies of what they show, once nothing depends on their strides any more."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from torch_neuronx_compile.decompositions.views import VIEWS
from torch_neuronx_compile.failures import failed
from torch_neuronx_compile.passes.splice import Form, splice


def copy_views(graph: fx.Graph, name: str) -> None:
    """Replace calls of ``VIEWS``; raises :class:`GraphCompilationError` for one that may show memory not given."""
    for target, form in VIEWS.items():
        for node in graph.find_nodes(op="call_function", target=target):
            source, args = node.args[0], list(node.args[1:])
            if target is torch.ops.aten.as_strided.default:  # of the memory, whatever views of it lie between
                args[2:] = [node.meta["val"].storage_offset()]
                source = behind_views(source)
            try:
                (result,) = splice(graph, node, _of_one_tensor(form, args), [source])
            except NotImplementedError as error:
                reason = f"has no lowering: {error}"
                raise failed(name, graph, "the copy of what it shows", reason, node=node) from None
            node.replace_all_uses_with(result)
            graph.erase_node(node)
    graph.eliminate_dead_code()


def _of_one_tensor(form: Callable[..., torch.Tensor], args: Sequence[Any]) -> Form:
    return lambda tensor: [form(tensor, *args)]


def behind_views(node: fx.Node) -> fx.Node:
    """Return the node whose memory ``node`` shows."""
    while isinstance(node.target, OpOverload) and _is_view(node.target):
        viewed = node.args[0]
        if not isinstance(viewed, fx.Node) or not _alike(node.meta["val"], viewed.meta["val"]):
            break
        node = viewed
    return node


def _is_view(op: OpOverload) -> bool:
    returned = op._schema.returns
    alias = returned[0].alias_info if len(returned) == 1 else None
    return alias is not None and not alias.is_write


def _alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether elements of both are the same bits of memory."""
    return one.dtype is other.dtype and one.is_conj() == other.is_conj() and one.is_neg() == other.is_neg()
