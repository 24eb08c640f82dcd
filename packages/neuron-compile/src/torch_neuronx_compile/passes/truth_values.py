"""Write a truth value that joins numbers as a number: the importer takes it for a tensor of bools."""

from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

_JOINED = (torch.TensorType, torch.NumberType)


def write_truth_values(graph: fx.Graph) -> None:
    """Replace ``True`` and ``False`` by 1 and 0 where an operator takes a number and its tensors are not bools."""
    for node in graph.nodes:
        if not isinstance(node.target, OpOverload) or _of_bools(node):
            continue
        schema = node.target._schema.arguments
        places = {i: argument for i, argument in enumerate(schema) if isinstance(argument.type, _JOINED)}
        names = {argument.name for argument in places.values()}
        node.args = tuple(_number(value) if i in places else value for i, value in enumerate(node.args))
        node.kwargs = {name: _number(value) if name in names else value for name, value in node.kwargs.items()}


def _of_bools(node: fx.Node) -> bool:
    values = [one.meta.get("val") for one in (node, *node.all_input_nodes)]
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    return not tensors or any(tensor.dtype is torch.bool for tensor in tensors)


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, bool) else value
