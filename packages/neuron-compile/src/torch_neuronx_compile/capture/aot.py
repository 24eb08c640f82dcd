"""AOT Autograd, set up for this backend."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import fx
from torch.nn.attention import SDPBackend, sdpa_kernel

from torch_neuronx.errors import NEFFCompilationError
from torch_neuronx_compile._compat import (
    SerializableAOTDispatchCompiler,
    aot_autograd,
    cached_functions,
    current_translator,
    min_cut_rematerialization_partition,
)
from torch_neuronx_compile.decompositions.table import decompositions
from torch_neuronx_compile.passes.random import seed_random_operators
from torch_neuronx_compile.saved.graph import Failure, SavedGraph
from torch_neuronx_compile.unit import GraphKind

CompileGraph = Callable[[fx.GraphModule, GraphKind], Callable[..., Any]]


def trace(
    module: fx.GraphModule, inputs: Sequence[Any], compile_graph: CompileGraph, cache_tag: str | None = None
) -> Callable[..., Any]:
    """Return what Dynamo calls in place of ``module``, made of what ``compile_graph`` returns for each AOT graph.

    With ``cache_tag``, a part of the key, AOT Autograd keeps the whole in its cache and finds it there: the backward
    graph is then compiled together with the forward graph, not at the first call of ``backward()``.
    """

    def compiler(kind: GraphKind) -> Any:
        if cache_tag is None:
            return lambda graph, _: compile_graph(graph, kind)
        return SerializableAOTDispatchCompiler(SavedGraph, lambda graph, _: SavedGraph.around(attempt(graph, kind)))

    def attempt(graph: fx.GraphModule, kind: GraphKind) -> Callable[..., Any]:
        try:
            return compile_graph(graph, kind)
        except NEFFCompilationError as error:
            # Who never calls backward() is not to see its errors, unless Dynamo can break the graph instead.
            translator = current_translator()
            if kind is not GraphKind.BACKWARD or (translator is not None and not translator.one_graph):
                raise
            return Failure(error)

    backend = aot_autograd(
        fw_compiler=compiler(GraphKind.FORWARD),
        bw_compiler=compiler(GraphKind.BACKWARD),
        inference_compiler=compiler(GraphKind.INFERENCE),
        decompositions=decompositions(),
        partition_fn=_partition,
    )
    # Attention is one operator of the graph, which the decompositions take apart; where it cannot be, its definition.
    caching = nullcontext() if cache_tag is None else cached_functions(cache_tag)
    with sdpa_kernel([SDPBackend.OVERRIDEABLE, SDPBackend.MATH]), caching:
        compiled: Callable[..., Any] = backend(module, inputs)
    return compiled


def _partition(joint: fx.GraphModule, inputs: Sequence[Any], **options: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
    seed_random_operators(joint.graph)
    joint.recompile()
    forward: fx.GraphModule
    backward: fx.GraphModule
    forward, backward = min_cut_rematerialization_partition(joint, inputs, **options)
    return forward, backward


def device_of(inputs: Sequence[Any]) -> torch.device:
    """Return the neuron device of the first input that has one, else the current one."""
    for value in inputs:
        if isinstance(value, torch.Tensor) and value.device.type == "neuron":
            return value.device
    return torch.device("neuron", torch.accelerator.current_device_index())
