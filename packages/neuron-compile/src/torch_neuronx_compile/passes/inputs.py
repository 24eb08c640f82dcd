"""Drop inputs that nothing reads."""

from torch import fx


def prune_inputs(graph: fx.Graph) -> tuple[int, ...]:
    """Erase unused placeholders; return the positions of those that stay."""
    kept = []
    for i, node in enumerate(list(graph.find_nodes(op="placeholder"))):
        if node.users:
            kept.append(i)
        else:
            graph.erase_node(node)
    return tuple(kept)
