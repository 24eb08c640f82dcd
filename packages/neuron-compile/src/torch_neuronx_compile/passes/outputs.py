"""Drop outputs that are not computed: torch-mlir takes no ``None``, and XLA would copy what is passed through.

Of outputs that share memory the program computes what they are views of, once: AOT Autograd takes views that need no
gradient for granted.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from torch_neuronx_compile.memory_order import is_dense
from torch_neuronx_compile.passes.views import behind_views
from torch_neuronx_compile.unit import Computed, OutputSource, Passed, Viewed


def strip_outputs(graph: fx.Graph, returned: int) -> tuple[OutputSource, ...]:
    """Leave each computed output once; return where every original output comes from.

    The first ``returned`` outputs are those that the caller sees.
    """
    output = graph.output_node()
    values: Sequence[Any] = output.args[0]  # type: ignore[assignment]
    arguments = {node: i for i, node in enumerate(graph.find_nodes(op="placeholder"))}
    shared = _sharing(values[:returned])
    results: dict[fx.Node, int] = {}
    sources: list[OutputSource] = []
    for node in values:
        if not isinstance(node, fx.Node):
            sources.append(None)
        elif node in arguments:
            sources.append(Passed(arguments[node]))
        elif node in shared:
            sources.append(_view(node, results.setdefault(shared[node], len(results)), shared[node]))
        else:
            sources.append(Computed(results.setdefault(node, len(results))))
    output.args = (tuple(results),)
    return tuple(sources)


def _sharing(values: Sequence[Any]) -> dict[fx.Node, fx.Node]:
    """Return what outputs are views of, for those that another output shares memory with."""
    sources = {node: behind_views(node) for node in values if isinstance(node, fx.Node)}
    outputs = Counter(sources.values())
    return {
        node: source
        for node, source in sources.items()
        if node is not source and outputs[source] > 1 and source.op == "call_function" and _is_whole(source.meta["val"])
    }


def _is_whole(value: torch.Tensor) -> bool:
    return value.numel() > 0 and is_dense(value)


def _view(node: fx.Node, result: int, source: fx.Node) -> Viewed:
    value, whole = node.meta["val"], source.meta["val"]
    return Viewed(
        result, tuple(value.shape), tuple(value.stride()), int(value.storage_offset() - whole.storage_offset())
    )
