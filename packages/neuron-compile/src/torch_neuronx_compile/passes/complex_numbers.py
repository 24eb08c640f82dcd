"""Replace complex tensors by pairs of real ones, in the whole graph, its inputs and its outputs.

A complex input or output of the program is a real tensor with a last axis of two, which is how its bytes lie in memory.
"""

from typing import Any

import torch
from torch import fx
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from torch_neuronx_compile._compat import detect_fake_mode
from torch_neuronx_compile.decompositions.complex_numbers import REAL_FORMS, Complex, componentwise
from torch_neuronx_compile.passes.splice import splice


def split_complex(graph: fx.Graph) -> None:
    """Rewrite ``graph`` without complex tensors; leave it alone if there are none."""
    if not any(_is_complex(node.meta.get("val")) for node in graph.nodes):
        return
    parts: dict[fx.Node, Any] = {}
    """What stands for a node: a pair of nodes, or a list of those."""
    for node in list(graph.nodes):
        if node.op == "placeholder" and _is_complex(node.meta["val"]):
            parts[node] = _split_input(graph, node)
        elif node.op == "call_function" and (
            _is_complex(node.meta.get("val")) or any(argument in parts for argument in node.all_input_nodes)
        ):
            _rewrite(graph, node, parts)
    output = graph.output_node()
    returned: Any = output.args[0]
    with graph.inserting_before(output):
        results = [_joined(graph, parts[node]) if node in parts else node for node in returned]
    output.args = (tuple(results),)
    for node in reversed(list(graph.nodes)):
        if not node.users and node.op == "call_function":
            graph.erase_node(node)
    graph.lint()


def _is_complex(value: Any) -> bool:
    values = value if isinstance(value, (tuple, list)) else (value,)
    return any(isinstance(item, torch.Tensor) and item.is_complex() for item in values)


def _split_input(graph: fx.Graph, node: fx.Node) -> Complex:
    value = node.meta["val"]
    mode = detect_fake_mode(value)
    assert mode is not None
    with mode:
        node.meta["val"] = torch.empty((*value.shape, 2), dtype=value.real.dtype, device=value.device)
    last = next(iter(reversed(list(graph.find_nodes(op="placeholder")))))
    nodes: list[fx.Node] = []
    for index in (0, 1):
        with graph.inserting_after(nodes[-1] if nodes else last):
            selected = graph.call_function(torch.ops.aten.select.int, (node, -1, index))
        with mode:
            selected.meta["val"] = torch.select(node.meta["val"], -1, index)
        nodes.append(selected)
    return Complex(*nodes)  # type: ignore[arg-type]


def _joined(graph: fx.Graph, pair: Complex) -> fx.Node:
    node = graph.call_function(torch.ops.aten.stack.default, (list(pair), -1))
    values = [part.meta["val"] for part in pair]  # type: ignore[attr-defined]
    mode = detect_fake_mode(values)
    assert mode is not None
    with mode:
        node.meta["val"] = torch.stack(values, -1)
    return node


def _rewrite(graph: fx.Graph, node: fx.Node, parts: dict[fx.Node, Any]) -> None:
    """Trace the operator's real form and put what it traced in front of ``node``."""
    if node.target.__name__ == "getitem":  # type: ignore[union-attr]
        parts[node] = parts[node.args[0]][node.args[1]]  # type: ignore[index]
        if isinstance(parts[node], fx.Node):
            node.replace_all_uses_with(parts.pop(node))
        return
    arguments = map_arg((node.args, node.kwargs), lambda argument: parts.get(argument, argument))
    leaves, spec = pytree.tree_flatten(arguments)
    nodes = [leaf for leaf in leaves if isinstance(leaf, fx.Node)]
    shape: Any = None

    def form(*tensors: torch.Tensor) -> list[torch.Tensor]:
        nonlocal shape
        given = iter(tensors)
        args, kwargs = pytree.tree_unflatten(
            [next(given) if isinstance(leaf, fx.Node) else leaf for leaf in leaves], spec
        )
        known = REAL_FORMS.get(node.target.overloadpacket)  # type: ignore[union-attr]
        result = known(*args, **kwargs) if known else componentwise(node.target, args, kwargs)  # type: ignore[arg-type]
        flat, shape = pytree.tree_flatten(result)
        return flat

    result = pytree.tree_unflatten(splice(graph, node, form, nodes), shape)
    if isinstance(result, fx.Node):
        node.replace_all_uses_with(result)
    else:
        parts[node] = result
