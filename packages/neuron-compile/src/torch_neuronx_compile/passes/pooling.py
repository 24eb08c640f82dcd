"""Spell out the stride of a pooling: torch-mlir reads an empty one as 1, torch as the kernel's size."""

import torch
from torch import fx

aten = torch.ops.aten
_POOLINGS = (
    aten.max_pool1d.default,
    aten.max_pool2d.default,
    aten.max_pool3d.default,
    aten.max_pool2d_with_indices.default,
    aten.max_pool3d_with_indices.default,
    aten.avg_pool1d.default,
    aten.avg_pool2d.default,
    aten.avg_pool3d.default,
)


def set_default_strides(graph: fx.Graph) -> None:
    """Give every pooling without a stride its kernel's size as the stride."""
    for target in _POOLINGS:
        for node in graph.find_nodes(op="call_function", target=target):
            if len(node.args) < 3 or not node.args[2]:
                node.args = (*node.args[:2], node.args[1], *node.args[3:])
