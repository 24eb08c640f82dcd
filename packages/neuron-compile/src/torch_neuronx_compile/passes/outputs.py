"""Drop outputs that are not computed: torch-mlir takes no ``None``, and XLA would copy what is passed through."""

from torch import fx

from torch_neuronx_compile.unit import Computed, OutputSource, Passed


def strip_outputs(graph: fx.Graph) -> tuple[OutputSource, ...]:
    """Leave each computed output once; return where every original output comes from."""
    output = graph.output_node()
    arguments = {node: i for i, node in enumerate(graph.find_nodes(op="placeholder"))}
    results: dict[fx.Node, int] = {}
    sources: list[OutputSource] = []
    for node in output.args[0]:  # type: ignore[union-attr]
        if not isinstance(node, fx.Node):
            sources.append(None)
        elif node in arguments:
            sources.append(Passed(arguments[node]))
        else:
            sources.append(Computed(results.setdefault(node, len(results))))
    output.args = (tuple(results),)
    return tuple(sources)
