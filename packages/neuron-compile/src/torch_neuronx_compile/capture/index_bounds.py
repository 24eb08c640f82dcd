"""Indices outside of what they index: found in the arguments of a graph before the emulator runs it.

Where eager mode raises, a NEFF's gather reads another row, or the chip stops with status 1006 (out-of-bounds index).
What Dynamo hands over still has the calls as the user wrote them, so that the error can name them. Indices that the
graph computes are not looked at.
"""

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.nn import functional

from torch_neuronx.compiler import current_options
from torch_neuronx_compile.capture.breaks import spelling
from torch_neuronx_compile.errors import IndexBoundsError
from torch_neuronx_compile.failures import user_line

_RESHAPES = frozenset({
    "contiguous", "flatten", "getitem", "int", "long", "permute", "reshape", "squeeze", "transpose", "unsqueeze",
    "view",
})  # fmt: skip
"""Functions and methods that an index may go through; they are done again on the argument."""


@dataclass(frozen=True, slots=True)
class IndexUse:
    """An index of a call, and what it may be."""

    call: fx.Node
    index: fx.Node
    lowest: int
    highest: int
    ignored: int | None = None
    """A value that is no index: the ``ignore_index`` of a loss."""


def check_indices(module: fx.GraphModule, compiled: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``compiled``, preceded by a look at the indices among the arguments of Dynamo's graph ``module``.

    A call raises :class:`IndexBoundsError`.
    """
    uses = [use for use in _uses(module.graph) if _is_argument(use.index)]
    uses = list({(use.index, use.lowest, use.highest, use.ignored): use for use in reversed(uses)}.values())
    if not uses:
        return compiled
    indices = _graph_of([use.index for use in uses])

    def checked(*arguments: Any) -> Any:
        if current_options() is None:  # otherwise nothing runs
            with torch.no_grad():
                for use, values in zip(uses, indices(*arguments), strict=True):
                    _check(use, values)
        return compiled(*arguments)

    return checked


def _check(use: IndexUse, values: torch.Tensor) -> None:
    if values.numel() == 0:
        return
    lowest, highest = values.aminmax()
    if lowest >= use.lowest and highest <= use.highest:
        return
    outside = values[((values < use.lowest) | (values > use.highest)) & (values != use.ignored)]
    if outside.numel() == 0:
        return
    line = user_line(use.call)
    call = f"{spelling(use.call)} ({line})" if line else spelling(use.call)
    raise IndexBoundsError(
        f"The index {outside[0].item()} is out of range for {call}, which takes {use.lowest} to {use.highest}. It is "
        "among the arguments of the compiled function: look at what made it."
    )


def _is_argument(node: Any) -> bool:
    """Return whether a node is an input of the graph that it does not write to, or such an input reshaped."""
    while isinstance(node, fx.Node) and not any(map(_writes, node.users)):
        if node.op == "placeholder":
            return True
        reshapes = _name(node) in _RESHAPES and node.all_input_nodes == [node.args[0]]  # by constants
        node = node.args[0] if reshapes else None
    return False


def _writes(node: fx.Node) -> bool:
    return _name(node).endswith("_") or _name(node) == "setitem" or "out" in node.kwargs


def _name(node: fx.Node) -> str:
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")


def _graph_of(nodes: Sequence[fx.Node]) -> fx.GraphModule:
    """Return what computes ``nodes`` from the arguments of their graph."""
    graph = fx.Graph()
    copied: dict[fx.Node, fx.Node] = {}

    def copy(node: fx.Node) -> fx.Node:
        if node not in copied:
            copied[node] = graph.node_copy(node, copy)
        return copied[node]

    for placeholder in nodes[0].graph.find_nodes(op="placeholder"):
        copy(placeholder)
    graph.output(tuple(map(copy, nodes)))
    return fx.GraphModule({}, graph)


# Which calls have indices ---------------------------------------------------------------------------------------------


def _uses(graph: fx.Graph) -> Iterator[IndexUse]:
    for node in graph.nodes:
        if node.op not in ("call_function", "call_method"):
            continue
        rule = _RULES.get(node.target if node.op == "call_method" else _NAMES.get(node.target))
        for use in () if rule is None else rule(node):
            value = _tensor(use.index)
            if value is not None and value.dtype in (torch.int32, torch.int64):
                yield use


def _tensor(node: Any) -> torch.Tensor | None:
    value = node.meta.get("example_value") if isinstance(node, fx.Node) else None
    plain = isinstance(value, torch.Tensor) and not hasattr(value, "__tensor_flatten__")  # a subclass has its own rules
    return value if plain else None


def _argument(call: fx.Node, position: int, name: str, default: Any = None) -> Any:
    return call.args[position] if len(call.args) > position else call.kwargs.get(name, default)


def _embedding(call: fx.Node) -> Iterator[IndexUse]:
    weight = _tensor(_argument(call, 1, "weight"))
    if weight is not None:
        yield IndexUse(call, _argument(call, 0, "input"), 0, len(weight) - 1)


def _loss(call: fx.Node) -> Iterator[IndexUse]:
    scores = _tensor(_argument(call, 0, "input"))
    if scores is not None and scores.dim() > 0:
        classes = int(scores.shape[1] if scores.dim() > 1 else scores.shape[0])
        ignored = _argument(call, 4, "ignore_index", -100)
        target = _argument(call, 1, "target")
        yield IndexUse(call, target, 0, classes - 1, ignored)


def _along_dim(call: fx.Node) -> Iterator[IndexUse]:
    tensor, dim = _tensor(_argument(call, 0, "input")), _argument(call, 1, "dim")
    if tensor is None or tensor.dim() == 0 or not isinstance(dim, int):
        return
    yield IndexUse(call, _argument(call, 2, "index"), 0, int(tensor.shape[dim]) - 1)


def _item(call: fx.Node) -> Iterator[IndexUse]:
    tensor, index = _tensor(call.args[0]), call.args[1]
    entries = list(index) if isinstance(index, tuple) else [index]
    if tensor is None or any(isinstance(entry, (list, bool)) for entry in entries):
        return
    masks = [value for value in map(_tensor, entries) if value is not None and value.dtype is torch.bool]
    taken = sum(entry is not None and entry is not Ellipsis for entry in entries)
    if masks or taken > tensor.dim():
        return
    dim = 0
    for entry in entries:
        if entry is Ellipsis:
            dim += tensor.dim() - taken
        elif entry is not None:
            if isinstance(entry, fx.Node):
                yield IndexUse(call, entry, -int(tensor.shape[dim]), int(tensor.shape[dim]) - 1)
            dim += 1


_RULES: dict[Any, Callable[[fx.Node], Iterator[IndexUse]]] = {
    "embedding": _embedding,
    "cross_entropy": _loss,
    "nll_loss": _loss,
    "index_select": _along_dim,
    "index_add": _along_dim,
    "index_copy": _along_dim,
    "gather": _along_dim,
    "scatter": _along_dim,
    "scatter_add": _along_dim,
    "getitem": _item,
}
_NAMES: dict[Any, str] = {
    functional.embedding: "embedding",
    functional.cross_entropy: "cross_entropy",
    functional.nll_loss: "nll_loss",
    operator.getitem: "getitem",
    **{getattr(torch, name): name for name in ("index_select", "index_add", "index_copy")},
    **{getattr(torch, name): name for name in ("gather", "scatter", "scatter_add")},
}
"""Functions by the name of the method that does the same."""
