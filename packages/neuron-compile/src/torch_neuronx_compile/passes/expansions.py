"""Replace what only this process knows in the arguments of operators that plugins expand."""

from typing import Any

from torch import fx
from torch._ops import OpOverload

from torch_neuronx import plugins
from torch_neuronx_compile.failures import failed


def rewrite_arguments(graph: fx.Graph, name: str) -> None:
    """Let plugins rewrite arguments; raises :class:`GraphCompilationError` for a call of ``graph`` that one refuses."""
    registered = plugins.manager().expansions()
    for node in graph.nodes:
        target = node.target
        if node.op != "call_function" or not isinstance(target, OpOverload):
            continue
        expansion = registered.get(f"{target.namespace}::{target._opname}.{target._overloadname}")
        if expansion is None or expansion.rewrite is None:
            continue
        positions = [argument.name for argument in target._schema.arguments]
        given = {**dict(zip(positions, node.args, strict=False)), **node.kwargs}
        try:
            changed = expansion.rewrite({key: value for key, value in given.items() if not _holds_tensors(value)})
        except NotImplementedError as error:
            raise failed(
                name, graph, "the rewriting of its arguments", f"has no lowering: {error}", node=node
            ) from None
        node.args = tuple(changed.get(key, value) for key, value in zip(positions, node.args, strict=False))
        node.kwargs = {key: changed.get(key, value) for key, value in node.kwargs.items()}


def _holds_tensors(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_holds_tensors, value))
    return isinstance(value, fx.Node)
