"""Lay results out in memory as the traced program does: what is taken of them later is a view by these strides."""

from dataclasses import replace
from typing import cast

import torch
from torch import fx

from torch_neuronx_compile.memory_order import in_memory, is_dense
from torch_neuronx_compile.unit import TensorSpec


def order_results(
    graph: fx.Graph, specs: tuple[TensorSpec | None, ...], returned: set[int]
) -> tuple[TensorSpec | None, ...]:
    """Permute the ``returned`` ones among the results of ``graph`` to how they lie in memory.

    A program's results are contiguous. Returns ``specs`` with the orders.
    """
    output = graph.output_node()
    results = list(cast(tuple[fx.Node, ...], output.args[0]))
    ordered = list(specs)
    for i in returned:
        spec, value = specs[i], results[i].meta.get("val")
        if spec is None or not isinstance(value, torch.Tensor) or value.is_contiguous():
            continue
        if not is_dense(value):  # it has gaps, or elements that are one in memory
            continue
        order = in_memory(value.stride())
        with graph.inserting_before(output):
            results[i] = graph.call_function(torch.ops.aten.permute.default, (results[i], order))
        results[i].meta["val"] = value.permute(order)
        ordered[i] = replace(spec, order=tuple(order))
    output.args = (tuple(results),)
    return tuple(ordered)
