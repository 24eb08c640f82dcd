"""Lift tensors that the graph holds as attributes to inputs: a NEFF has no weights inside."""

import torch
from torch import fx


def lift_constants(module: fx.GraphModule, graph: fx.Graph) -> tuple[torch.Tensor, ...]:
    """Append a placeholder for every tensor attribute of ``module`` that ``graph`` reads; return those tensors."""
    constants: dict[str, torch.Tensor] = {}
    placeholders: dict[str, fx.Node] = {}
    for node in list(graph.nodes):
        if node.op != "get_attr":
            continue
        name = str(node.target)
        if name not in placeholders:
            constants[name] = _attribute(module, name)
            placeholders[name] = append_placeholder(graph, f"constant_{len(constants)}", node.meta["val"])
        node.replace_all_uses_with(placeholders[name])
        graph.erase_node(node)
    return tuple(constants.values())


def append_placeholder(graph: fx.Graph, name: str, value: object) -> fx.Node:
    """Add an input after the others; ``value`` is its fake tensor."""
    placeholders = list(graph.find_nodes(op="placeholder"))
    first = next(iter(graph.nodes))
    with graph.inserting_after(placeholders[-1]) if placeholders else graph.inserting_before(first):
        node = graph.placeholder(name)
    node.meta["val"] = value
    return node


def _attribute(module: fx.GraphModule, name: str) -> torch.Tensor:
    owner, _, leaf = name.rpartition(".")
    value = getattr(module.get_submodule(owner), leaf)
    assert isinstance(value, torch.Tensor), f"{name} is a {type(value).__name__}"
    return value
