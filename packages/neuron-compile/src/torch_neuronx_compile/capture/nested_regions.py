"""Regions marked by ``torch.compiler.nested_compile_region``: this backend compiles none of them by itself."""

from torch import fx

from torch_neuronx_compile._compat import invoke_subgraph
from torch_neuronx_compile.errors import NestedRegionError
from torch_neuronx_compile.failures import user_line


def check_no_nested_regions(module: fx.GraphModule) -> None:
    """Raise :class:`NestedRegionError` if ``module`` calls a region that is to be compiled by itself.

    A NEFF is one program, which cannot call another one.
    """
    for node in module.graph.nodes:
        if node.op == "call_function" and node.target is invoke_subgraph:
            where = user_line(node)
            raise NestedRegionError(
                "A function marked by torch.compiler.nested_compile_region is called in a graph for backend='neuron'"
                f"{f' ({where})' if where else ''}, and a NEFF cannot call another one. Remove the mark: the "
                "function then becomes part of the graph around it."
            )
