"""AOT Autograd, set up for this backend."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.nn.attention import SDPBackend, sdpa_kernel

from torch_neuronx.errors import NEFFCompilationError
from torch_neuronx_compile._compat import (
    SerializableAOTDispatchCompiler,
    aot_autograd,
    backward_with_forward,
    cached_functions,
    current_translator,
    keep_what_is_saved,
    let_pinned_sizes_overlap,
    min_cut_rematerialization_partition,
    recomputing,
    views_of_arguments,
    written_inputs,
)
from torch_neuronx_compile.capture.recomputation import keep_costly
from torch_neuronx_compile.decompositions.table import decompositions
from torch_neuronx_compile.passes.random import seed_random_operators
from torch_neuronx_compile.pending import Graph
from torch_neuronx_compile.saved.graph import Failure, SavedGraph
from torch_neuronx_compile.unit import GraphKind
from torch_neuronx_compile.worker.client import start_early

CompileGraph = Callable[[fx.GraphModule, GraphKind], Graph]


def trace(
    module: fx.GraphModule, inputs: Sequence[Any], compile_graph: CompileGraph, cache_tag: str | None = None
) -> Callable[..., Any]:
    """Return what Dynamo calls in place of ``module``, made of what ``compile_graph`` returns for each AOT graph.

    The backward graph is compiled together with the forward graph, not at the first call of ``backward()``:
    ``compile_graph`` may return before a graph is compiled. With ``cache_tag``, a part of the key, AOT Autograd keeps
    the whole in its cache and finds it there.
    """
    made: list[SavedGraph] = []

    def compiler(kind: GraphKind) -> Any:
        def compile_one(graph: fx.GraphModule, _: Any) -> SavedGraph:
            made.append(SavedGraph.around(attempt(graph, kind)))
            return made[-1]

        return compile_one if cache_tag is None else SerializableAOTDispatchCompiler(SavedGraph, compile_one)

    def attempt(graph: fx.GraphModule, kind: GraphKind) -> Graph:
        if kind is GraphKind.BACKWARD:
            keep_what_is_saved()
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
        decompositions=_Decompositions(),
        partition_fn=_partition,
    )
    let_pinned_sizes_overlap()
    # Attention is one operator of the graph, which the decompositions take apart; where it cannot be, its definition.
    caching = nullcontext() if cache_tag is None else cached_functions(cache_tag)
    try:
        with (
            sdpa_kernel([SDPBackend.OVERRIDEABLE, SDPBackend.MATH]),
            backward_with_forward(),
            recomputing(),
            views_of_arguments(),
            caching,
        ):
            compiled: Callable[..., Any] = backend(module, inputs)
    finally:
        for graph in made:
            graph.settle()
    return compiled


class _Decompositions(Mapping[OpOverload, Callable[..., Any]]):
    """The decompositions, from when AOT Autograd asks for the first one: it traces, for its cache has nothing.

    They take a tenth of a second, and the worker gets ready from then on.
    """

    def __init__(self) -> None:
        self._table: dict[OpOverload, Callable[..., Any]] | None = None

    def _loaded(self) -> dict[OpOverload, Callable[..., Any]]:
        if self._table is None:
            start_early()
            self._table = decompositions()
        return self._table

    def __getitem__(self, op: OpOverload) -> Callable[..., Any]:
        return self._loaded()[op]

    def __iter__(self) -> Iterator[OpOverload]:
        return iter(self._loaded())

    def __len__(self) -> int:
        return len(self._loaded())


def _partition(joint: fx.GraphModule, inputs: Sequence[Any], **options: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
    start_early(2)  # both graphs are lowered at the same time
    seed_random_operators(joint.graph)
    keep_costly(joint.graph, written_inputs(joint.graph))
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
