"""Find the operator that keeps a graph from being lowered.

MLIR's messages name what a pass met first, often a constant that belongs to the operator at fault, and after an abort
there is no message at all. So each kind of call is lowered by itself, until one fails.
"""

import operator
import time
from collections.abc import Callable

import torch
from torch import fx
from torch.fx.node import map_arg

from torch_neuronx_compile.worker.client import WorkerError

TIME_LIMIT = 60.0
"""Seconds after which the search is given up."""


def find_culprit(graph: fx.Graph, lower: Callable[[fx.Graph], object]) -> tuple[fx.Node, str] | None:
    """Return the first call of ``graph`` that does not lower by itself, and why; ``None`` if none is found in time."""
    deadline = time.monotonic() + TIME_LIMIT
    tried: set[str] = set()
    for node in graph.nodes:
        if node.op != "call_function" or node.target is operator.getitem:
            continue
        alone = isolate(node)
        text = _signature(alone)
        if text in tried:
            continue
        tried.add(text)
        try:
            lower(alone)
        except WorkerError as error:
            return node, _explain(error)
        if time.monotonic() > deadline:
            return None
    return None


def isolate(node: fx.Node) -> fx.Graph:
    """Return a graph that does nothing but ``node``'s call, on inputs."""
    graph = fx.Graph()
    inputs: dict[fx.Node, fx.Node] = {}
    for argument in node.all_input_nodes:
        inputs[argument] = graph.placeholder(f"input_{len(inputs)}")
        inputs[argument].meta["val"] = argument.meta["val"]
    call = graph.call_function(
        node.target,  # type: ignore[arg-type]
        map_arg(node.args, inputs.__getitem__),
        map_arg(node.kwargs, inputs.__getitem__),
    )
    call.meta["val"] = node.meta["val"]
    results = [call]
    if isinstance(node.meta["val"], (tuple, list)):
        results = []
        for i, value in enumerate(node.meta["val"]):
            if isinstance(value, torch.Tensor):
                item = graph.call_function(operator.getitem, (call, i))
                item.meta["val"] = value
                results.append(item)
    graph.output(tuple(results))
    return graph


def _signature(graph: fx.Graph) -> str:
    types = [
        (tuple(value.shape), value.dtype)
        for value in (node.meta["val"] for node in graph.find_nodes(op="placeholder"))
        if isinstance(value, torch.Tensor)
    ]
    calls = [(str(node.target), node.args, node.kwargs) for node in graph.nodes if node.op == "call_function"]
    return f"{types} {calls}"


def _explain(error: WorkerError) -> str:
    if error.fatal:
        return f"ends the lowering: {error.reason} {error.diagnostics[-500:]}".strip().replace("\n", " ")
    if "failed to legalize" in error.reason or "unsupported by backend contract" in error.reason:
        return "has no lowering"
    return f"does not lower: {error.reason.strip().splitlines()[-1]}"
