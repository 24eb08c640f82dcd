"""The Dynamo backend ``neuron``."""

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import torch
from torch import fx

from torch_neuronx import plugins
from torch_neuronx.compiler import current_options
from torch_neuronx.compilers import Compiler, Preparing
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
from torch_neuronx_compile.garbage import seldom_collected
from torch_neuronx_compile.lowering.lower import lower
from torch_neuronx_compile.lowering.show import show_stages
from torch_neuronx_compile.naming import GraphNames, get_model_name
from torch_neuronx_compile.options import CompileOptions, falls_back, in_force, read_options
from torch_neuronx_compile.passes.pipeline import prepare
from torch_neuronx_compile.pending import Graph, PendingGraph
from torch_neuronx_compile.saved.fingerprint import cache_tag
from torch_neuronx_compile.saved.graph import named_by
from torch_neuronx_compile.saved.precompile import write_at_exit
from torch_neuronx_compile.unit import CompilationUnit, GraphKind
from torch_neuronx_compile.worker.client import worker


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
        with seldom_collected(), handing_over(module), named_by(names):
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
) -> Graph:
    """Take one AOT graph through every stage; raises :class:`GraphCompilationError` unless it may fall back.

    A forward graph is compiled by another thread while this one goes on to the backward graph: what is wrong with it is
    raised by :func:`settled`.
    """
    name = names.name(kind)
    captured(module, kind, name)
    falling = falls_back(in_force(options))
    eager = EagerGraph(module) if falling else None

    def compile_part(part: fx.GraphModule, named: str) -> ModalGraph:
        return _start(part, kind, named, names.model, device, options)()

    def instead(error: NEFFCompilationError) -> Graph:
        if kind is GraphKind.BACKWARD and isinstance(error, GraphCompilationError) and error.unsupported:
            return compile_in_parts(module, name, error, compile_part)
        if eager is None:
            raise error
        logger("compile").warning("The graph %s runs in eager mode: %s", name, error)
        plugins.notify(GraphFellBack(name, str(error)))
        return eager

    def finish(compile_now: Callable[[], Graph]) -> Graph:
        try:
            compiled = compile_now()
        except NEFFCompilationError as error:
            return instead(error)
        return compiled if eager is None else GraphWithFallback(name, compiled, eager)

    try:
        compile_now = _start(module, kind, name, names.model, device, options)
    except NEFFCompilationError as error:
        return instead(error)
    return PendingGraph(name, lambda: finish(compile_now)) if kind is GraphKind.FORWARD else finish(compile_now)


def _start(
    module: fx.GraphModule, kind: GraphKind, name: str, model: str, device: torch.device, options: CompileOptions
) -> Callable[[], ModalGraph]:
    """Prepare a graph in the context that AOT Autograd has set up; what is returned compiles it, also elsewhere."""
    timestamp = datetime.now(UTC).isoformat(timespec="microseconds")
    start = time.perf_counter()
    unit = replace(prepare(module, kind, name, device), updated=updated_inputs(kind is not GraphKind.BACKWARD))
    passes = time.perf_counter() - start
    draft = metrics.NeuronCompilationMetrics(
        graph_id="",
        graph_name=name,
        model_name=model,
        has_collectives=metrics.has_collectives(module.graph),
        graph_node_count=len(module.graph.nodes),
        timestamp=timestamp,
        torch_neuronx_fx_passes_us=round(passes * 1e6),
        torch_neuronx_lower_us=0,
        torch_neuronx_compile_us=0,
    )
    return lambda: _compile(unit, draft, options)


_ready: set[str] = set()


def _get_ready(compiler: Compiler) -> None:
    """Have this process get ready to run programs while a worker lowers and compiles the first one."""
    if isinstance(compiler, Preparing) and compiler.name not in _ready:
        _ready.add(compiler.name)
        worker().meanwhile(compiler.get_ready)


def _compile(unit: CompilationUnit, draft: metrics.NeuronCompilationMetrics, options: CompileOptions) -> ModalGraph:
    if current_options() is None:
        _get_ready(toolchain(options).compiler)
    start = time.perf_counter()
    lowered = lower(unit)
    lowering = time.perf_counter() - start
    show_stages(lowered)
    draft = replace(
        draft,
        graph_id=lowered.key,
        torch_neuronx_lower_us=round(lowering * 1e6) if lowered.made else 0,
    )
    return ModalGraph(lowered, options, draft)
