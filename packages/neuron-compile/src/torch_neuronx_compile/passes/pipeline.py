"""The passes in their order: an AOT graph in, a compilation unit out."""

import torch
from torch import fx

from torch_neuronx_compile._compat import returned_outputs
from torch_neuronx_compile.failures import failed
from torch_neuronx_compile.passes.complex_numbers import split_complex
from torch_neuronx_compile.passes.constants import lift_constants
from torch_neuronx_compile.passes.devices import move_to_cpu, of_the_cpu
from torch_neuronx_compile.passes.empty import fill_empty
from torch_neuronx_compile.passes.expansions import rewrite_arguments
from torch_neuronx_compile.passes.float64 import narrow_float64
from torch_neuronx_compile.passes.inputs import prune_inputs
from torch_neuronx_compile.passes.layouts import order_results
from torch_neuronx_compile.passes.outputs import strip_outputs
from torch_neuronx_compile.passes.random import lift_seeds, seed_random_operators
from torch_neuronx_compile.passes.symbols import data_dependent, specialise
from torch_neuronx_compile.passes.truth_values import write_truth_values
from torch_neuronx_compile.passes.uninitialized import fill_uninitialized
from torch_neuronx_compile.passes.views import copy_views
from torch_neuronx_compile.support.control_flow import first_call_with_a_body, why_no_body
from torch_neuronx_compile.unit import CompilationUnit, Computed, GraphKind, TensorSpec, Viewed


def prepare(module: fx.GraphModule, kind: GraphKind, name: str, device: torch.device) -> CompilationUnit:
    """Return the unit of one AOT graph, whose inputs are tensors and integers; ``module`` stays as it is.

    Raises :class:`GraphCompilationError` for a shape that depends on data, and for an operator that takes functions.
    """
    # A deep copy of the module fails under a fake mode where it holds constants; a copy of the graph does not.
    graph = fx.Graph(module)
    copied: dict[fx.Node, fx.Node] = {}
    result = graph.graph_copy(module.graph, copied)
    graph.output(result)
    for node in graph.nodes:
        node.meta.pop("tensor_meta", None)  # the importer would believe it where a pass has changed the dtype
    if kind is GraphKind.INFERENCE:
        seed_random_operators(graph)
    dependent = data_dependent(graph)
    if dependent is not None:
        reason = "has a result whose shape depends on the values of its inputs, and a NEFF has static shapes"
        raise failed(name, graph, "the check of its shapes", reason, node=dependent)
    with_body = first_call_with_a_body(module, graph)
    if with_body is not None:
        reason = f"has no lowering: {why_no_body(with_body.target)}"
        raise failed(name, graph, "the check for control flow", reason, node=with_body)
    specialise(graph)
    rewrite_arguments(graph, name)
    write_truth_values(graph)
    fill_uninitialized(graph)
    fill_empty(graph)
    on_cpu = of_the_cpu(graph)
    count = _returned(graph, kind)
    outputs = strip_outputs(graph, count)
    returned = {source.result for source in outputs[:count] if isinstance(source, Computed | Viewed)}
    results = tuple(
        _spec(node, on_cpu=node in on_cpu and i in returned)  # what only the backward graph gets stays where it is
        for i, node in enumerate(graph.output_node().args[0])  # type: ignore[arg-type]
    )
    results = order_results(graph, results, returned)
    specs = [_spec(node) for node in graph.find_nodes(op="placeholder")]
    arguments = prune_inputs(graph)
    constants = lift_constants(module, graph)
    seeds = lift_seeds(graph)
    copy_views(graph, name)
    split_complex(graph)
    narrowed = narrow_float64(graph)
    move_to_cpu(graph)
    graph.lint()
    return CompilationUnit(
        name=name,
        kind=kind,
        graph=graph,
        device=device,
        arguments=arguments,
        inputs=tuple(spec for spec in (specs[i] for i in arguments) if spec is not None),
        constants=constants,
        seeds=seeds,
        narrowed=narrowed,
        outputs=outputs,
        results=tuple(spec for spec in results if spec is not None),
    )


def _returned(graph: fx.Graph, kind: GraphKind) -> int:
    """Return how many of the outputs the caller sees: what a backward graph gives, AOT Autograd takes."""
    if kind is GraphKind.BACKWARD:
        return 0
    forward = returned_outputs() if kind is GraphKind.FORWARD else None
    return len(graph.output_node().args[0]) if forward is None else forward  # type: ignore[arg-type]


def _spec(node: fx.Node, *, on_cpu: bool = False) -> TensorSpec | None:
    """Return the spec of a tensor, ``None`` for the placeholder of an integer."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return None
    return TensorSpec(tuple(int(extent) for extent in value.shape), value.dtype, value.device, on_cpu)
