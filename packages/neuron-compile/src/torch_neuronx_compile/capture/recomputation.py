"""Which results a backward graph computes again, instead of keeping them since the forward graph.

PyTorch's partitioner recomputes little by default: it counts on one fused kernel for each chain of operations, in which
a result that the backward pass reads anyway costs nothing extra to keep. Here each kept result is a tensor of its own
from the forward pass to the backward pass, and a step would hold more than eager mode does. So whatever is cheap is
recomputed, and what is not is marked.
"""

from torch import fx
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


def keep_costly(graph: fx.Graph) -> None:
    """Mark what the partitioner must not compute twice: products, sorts, kernels, collectives, random bits."""
    for node in graph.nodes:
        if node.op == "call_function" and _TAG not in node.meta and not is_cheap(node):
            node.meta[_TAG] = CheckpointPolicy.MUST_SAVE


def is_cheap(node: fx.Node) -> bool:
    """Return whether a call may run again in the backward graph."""
    name = getattr(getattr(node.target, "_schema", None), "name", "")
    return name in _CHEAP or is_recomputable(node.target)
