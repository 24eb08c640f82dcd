"""The Dynamo backend ``neuron``."""

import inspect
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import torch
from torch import fx

from torch_neuronx import plugins
from torch_neuronx.errors import ConfigurationError, NEFFCompilationError, RuntimeUnavailableError
from torch_neuronx.events import GraphFellBack
from torch_neuronx.logs import logger
from torch_neuronx.runtimes.select import select_device_runtime
from torch_neuronx_compile import metrics
from torch_neuronx_compile._compat import ShortenTraceback, caches_packages, must_be_saved, updated_inputs
from torch_neuronx_compile.capture.aot import device_of, trace
from torch_neuronx_compile.capture.breaks import handing_over, install
from torch_neuronx_compile.capture.index_bounds import check_indices
from torch_neuronx_compile.capture.nested_regions import check_no_nested_regions
from torch_neuronx_compile.capture.partition import compile_in_parts
from torch_neuronx_compile.capture.shapes import check_static, specialise
from torch_neuronx_compile.compile_only import ModalGraph
from torch_neuronx_compile.compilers.select import toolchain
from torch_neuronx_compile.eager import EagerGraph, GraphWithFallback
from torch_neuronx_compile.errors import GraphCompilationError, let_through
from torch_neuronx_compile.explain.capture import captured
from torch_neuronx_compile.lowering.lower import lower
from torch_neuronx_compile.lowering.show import show_stages
from torch_neuronx_compile.naming import GraphNames, get_model_name
from torch_neuronx_compile.options import CompileOptions, falls_back, in_force, read_options
from torch_neuronx_compile.passes.pipeline import prepare
from torch_neuronx_compile.saved.fingerprint import cache_tag
from torch_neuronx_compile.saved.graph import named_by
from torch_neuronx_compile.saved.precompile import write_at_exit
from torch_neuronx_compile.unit import GraphKind
from torch_neuronx_compile.worker.client import start_early


def neuron(
    module: fx.GraphModule,
    inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    **others: Any,
) -> Callable[..., Any]:
    """Compile Dynamo's graph ``module`` for ``inputs`` and return what runs in its place.

    Raises :class:`StaticShapeError` for ``dynamic=True``, :class:`GraphCompilationError` (a
    :class:`NEFFCompilationError`) for a graph that does not compile unless it may fall back, and
    :class:`ConfigurationError` for an option of the wrong type.
    """
    try:
        chosen = read_options(mode, options, others)
        names = GraphNames(in_force(chosen).model_name or get_model_name())
        toolchain(chosen)  # what cannot be used is refused before anything is traced
        check_static(inputs)
        check_no_nested_regions(module)
        specialise(inputs)
        device = device_of(inputs)
        write_at_exit()
        with handing_over(module), named_by(names):
            compiler = partial(compile_graph, names=names, device=device, options=chosen)
            compiled = trace(module, inputs, compiler, cache_tag(chosen))
            # What Dynamo is to save must be PyTorch's own object. Without eager mode there is nothing to look with.
            checks = not caches_packages() and not must_be_saved() and select_device_runtime().eager
            return check_indices(module, compiled) if checks else compiled
    except ShortenTraceback as error:
        error.first_useful_frame = inspect.currentframe()  # the user's traceback leaves out Dynamo's 30 frames
        raise
    except (ConfigurationError, RuntimeUnavailableError) as error:
        known = let_through(error)
        known.first_useful_frame = inspect.currentframe()
        raise known from error


install(neuron)


def compile_graph(
    module: fx.GraphModule, kind: GraphKind, names: GraphNames, device: torch.device, options: CompileOptions
) -> Callable[..., Any]:
    """Take one AOT graph through every stage; raises :class:`GraphCompilationError` unless it may fall back."""
    name = names.name(kind)
    captured(module, kind, name)
    falling = falls_back(in_force(options))
    try:
        compiled = _compile(module, kind, name, names.model, device, options)
    except NEFFCompilationError as error:
        if kind is GraphKind.BACKWARD and isinstance(error, GraphCompilationError) and error.unsupported:
            return compile_in_parts(
                module, name, error, lambda part, named: _compile(part, kind, named, names.model, device, options)
            )
        if not falling:
            raise
        logger("compile").warning("The graph %s runs in eager mode: %s", name, error)
        plugins.notify(GraphFellBack(name, str(error)))
        return EagerGraph(module)
    return GraphWithFallback(name, compiled, EagerGraph(module)) if falling else compiled


def _compile(
    module: fx.GraphModule, kind: GraphKind, name: str, model: str, device: torch.device, options: CompileOptions
) -> ModalGraph:
    timestamp = datetime.now(UTC).isoformat()
    clock = [time.perf_counter()]
    unit = replace(prepare(module, kind, name, device), updated=updated_inputs(kind is not GraphKind.BACKWARD))
    clock.append(time.perf_counter())
    lowered = lower(unit)
    clock.append(time.perf_counter())
    show_stages(lowered)
    passes, lowering = (round((b - a) * 1e6) for a, b in itertools.pairwise(clock))
    draft = metrics.NeuronCompilationMetrics(
        graph_id=lowered.key,
        graph_name=name,
        model_name=model,
        has_collectives=metrics.has_collectives(module.graph),
        graph_node_count=len(module.graph.nodes),
        timestamp=timestamp,
        torch_neuronx_fx_passes_us=passes,
        torch_neuronx_lower_us=lowering if lowered.made else 0,
        torch_neuronx_compile_us=0,
    )
    return ModalGraph(lowered, options, draft)


# torch.compile imports this module when it looks the backend up. The worker gets ready while Dynamo traces.
start_early()
