"""Which results a backward graph computes again, instead of keeping them since the forward graph.

PyTorch's partitioner recomputes little by default: it counts on one fused kernel for each chain of operations, in which
a result that the backward pass reads anyway costs nothing extra to keep. Here each kept result is a tensor of its own
from the forward pass to the backward pass, and a step would hold more than eager mode does. So whatever is cheap is
recomputed, and what is not is marked.

Two kinds of cheap results are kept all the same. What is computed of an argument that the program writes into later:
only its former elements would do. And floats that are compared for equality, as the gradient of ``amax`` compares a
result and what it was taken of: recomputed they may differ in the last place, and no element would be the largest.
"""

from collections.abc import Collection

import torch
from torch import Tensor, fx
from torch._ops import OpOverload
from torch.utils.checkpoint import CheckpointPolicy

from torch_neuronx_compile._compat import is_recomputable

_CHEAP = frozenset(
    {
        "aten::split",
        "aten::split_with_sizes",
        "neuron_compile::gelu",
        "neuron_compile::gelu_tanh",
        "neuron_compile::layer_norm",
        "neuron_compile::silu",
        "prims::squeeze",
    }
)
"""Elementwise operators, views and normalizations that PyTorch's own list lacks."""

_TAG = "recompute"  # where the partitioner looks; activation checkpointing writes there


_EQUALITIES = (torch.ops.aten.eq.Tensor, torch.ops.aten.ne.Tensor)


def keep_costly(graph: fx.Graph, written: Collection[fx.Node] = ()) -> None:
    """Mark what the partitioner must not compute twice: products, sorts, kernels, collectives, random bits.

    ``written`` are the arguments into which the program writes.
    """
    changed = set(written)
    compared = {_shown(operand) for node in graph.nodes if _compares_floats(node) for operand in node.all_input_nodes}
    for node in graph.nodes:
        if node.op != "call_function" or _TAG in node.meta:
            continue
        if not is_cheap(node) or node in compared or not changed.isdisjoint(map(_shown, node.all_input_nodes)):
            node.meta[_TAG] = CheckpointPolicy.MUST_SAVE


def _shown(node: fx.Node) -> fx.Node:
    """Return what a view shows: views are never kept, only that."""
    while isinstance(node.target, OpOverload) and node.target.is_view:
        node = node.all_input_nodes[0]
    return node


def _compares_floats(node: fx.Node) -> bool:
    values = [operand.meta.get("val") for operand in node.all_input_nodes]
    return node.target in _EQUALITIES and all(
        isinstance(value, Tensor) and value.is_floating_point() for value in values
    )


def is_cheap(node: fx.Node) -> bool:
    """Return whether a call may run again in the backward graph."""
    name = getattr(getattr(node.target, "_schema", None), "name", "")
    return name in _CHEAP or is_recomputable(node.target)
