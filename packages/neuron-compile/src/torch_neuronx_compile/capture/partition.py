"""A backward graph with calls that do not lower: these run in eager mode, the graphs between them are compiled.

Dynamo cannot break a graph that it never sees. What a gradient needs is known when the forward graph has been traced,
and under ``fullgraph=True`` there is no break at all.
"""

import operator
from collections.abc import Callable
from typing import Any

from torch import fx
from torch.fx.passes.split_module import split_module

from torch_neuronx import plugins
from torch_neuronx.events import OpFellBack
from torch_neuronx.logs import logger
from torch_neuronx_compile.errors import GraphCompilationError
from torch_neuronx_compile.failures import describe

_ORIGIN = "neuron_partition_origin"

CompilePart = Callable[[fx.GraphModule, str], Callable[[list[Any]], Any]]


class PartitionedGraph:
    """Runs the parts of a graph one after the other, with the graph's calling convention."""

    def __init__(self, module: fx.GraphModule, calls: list[tuple[str, str]]) -> None:
        self._boxed_call = True
        self._module = module
        self._calls = calls

    def __call__(self, arguments: list[Any]) -> Any:
        """Run the graph; empties ``arguments``."""
        given = list(arguments)
        arguments.clear()
        for op, reason in self._calls:
            plugins.notify(OpFellBack(op, reason))
        return self._module(*given)


def compile_in_parts(
    module: fx.GraphModule, name: str, error: GraphCompilationError, compile_part: CompilePart
) -> PartitionedGraph:
    """Return what runs ``module`` with the call that ``error`` names, and those found after it, in eager mode.

    Raises ``error``, or the one of a part, where no call of ``module`` is at fault.
    """
    nodes = {node.name: node for node in module.graph.nodes}
    for node in module.graph.nodes:
        node.meta[_ORIGIN] = node.name  # parts and passes name their nodes anew
    eager: dict[str, str] = {}
    while True:
        culprit = None if error.node is None else nodes.get(error.node.meta.get(_ORIGIN, error.node.name))
        if culprit is None or culprit.name in eager or not error.unsupported:
            raise error
        eager[culprit.name] = error.reason
        try:
            parts = _compile_parts(module, name, frozenset(eager), compile_part)
        except GraphCompilationError as other:
            error = other
            continue
        for culprit_name, reason in eager.items():
            call = describe(nodes[culprit_name])
            logger("compile").warning("In the graph %s this call runs in eager mode: %s %s", name, call, reason)
        return PartitionedGraph(parts, [(_qualified(nodes[node]), reason) for node, reason in eager.items()])


def _compile_parts(
    module: fx.GraphModule, name: str, eager: frozenset[str], compile_part: CompilePart
) -> fx.GraphModule:
    parts: dict[str, int] = {}
    current = 0
    for node in module.graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        if node.target is operator.getitem and node.args[0].name in eager:
            parts[node.name] = parts[node.args[0].name]  # compiled graphs take tensors, not tuples of them
            continue
        current += node.name in eager
        parts[node.name] = current
        current += node.name in eager
    # A part that holds a call to run in eager mode holds nothing else; its number tells.
    alone = {parts[node] for node in eager}
    split = split_module(module, module, lambda node: parts[node.name], keep_original_order=True)
    for child, part in list(split.named_children()):
        number = int(child.rpartition("_")[2])
        if isinstance(part, fx.GraphModule) and number not in alone:
            _as_tuple(part)
            compiled = compile_part(part, f"{name}_part_{number}")
            delattr(split, child)
            setattr(split, child, _Part(compiled, single=part.meta["single"]))
    return split


def _as_tuple(part: fx.GraphModule) -> None:
    """Give a part that returns one value a tuple, as AOT Autograd's graphs return."""
    output = part.graph.output_node()
    part.meta["single"] = not isinstance(output.args[0], (tuple, list))
    if part.meta["single"]:
        output.args = ((output.args[0],),)
        part.recompile()


class _Part:
    """A compiled part, called as a function."""

    def __init__(self, compiled: Callable[[list[Any]], Any], *, single: bool) -> None:
        self._compiled = compiled
        self._single = single

    def __call__(self, *arguments: Any) -> Any:
        results = self._compiled(list(arguments))
        return results[0] if self._single else tuple(results)


def _qualified(node: fx.Node) -> str:
    return str(getattr(node.target, "_schema", node).name)
