"""Build nodes that carry the metadata of what they compute."""

from collections.abc import Callable
from typing import Any

from torch import fx
from torch.fx.node import map_arg

from torch_neuronx_compile._compat import detect_fake_mode

ORIGIN = ("stack_trace", "nn_module_stack", "seq_nr", "partitioner_tag", "recompute", "ac_graph_id")
"""The metadata that calls take over from the one that they stand for."""


class Emitter:
    """Adds calls to a graph in front of one of its nodes."""

    def __init__(self, graph: fx.Graph, before: fx.Node) -> None:
        self._graph = graph
        self._before = before

    def __call__(self, op: Callable[..., Any], *args: Any, **kwargs: Any) -> fx.Node:
        """Add ``op(*args, **kwargs)`` and return its node."""
        with self._graph.inserting_before(self._before):
            node = self._graph.call_function(op, args, kwargs)
        node.meta["val"] = value_of(node)
        for name in ORIGIN:
            if name in self._before.meta:
                node.meta[name] = self._before.meta[name]
        return node


def value_of(node: fx.Node) -> Any:
    """Return what a call gives for the fake values of its arguments."""
    args, kwargs = map_arg((node.args, node.kwargs), lambda argument: argument.meta["val"])
    mode = detect_fake_mode((args, kwargs, node.meta.get("val")))
    assert mode is not None
    assert callable(node.target)
    with mode:
        return node.target(*args, **kwargs)
