"""Graphs in both modes: run on the device, or compiled and not run.

What Dynamo keeps for a function outlives the mode in which it was compiled. So a graph looks at every call which mode
is on: in compile-only mode it makes sure that there is a NEFF for that mode's target and flags and answers with zeros;
otherwise it runs, and a graph that was only compiled is loaded first.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import torch

from torch_neuronx.compiler import current_options, entered
from torch_neuronx.runtimes.select import select_runtime
from torch_neuronx_compile import metrics
from torch_neuronx_compile.compiled_graph import CompiledGraph, Outputs, view
from torch_neuronx_compile.compilers.select import toolchain
from torch_neuronx_compile.loaded import Origin, build, load
from torch_neuronx_compile.metrics import NeuronCompilationMetrics
from torch_neuronx_compile.options import CompileOptions
from torch_neuronx_compile.unit import CompilationUnit, Computed, LoweredProgram, Passed, Viewed


class ModalGraph:
    """A graph with AOT Autograd's calling convention that is compiled at once, for the mode that is on."""

    def __init__(self, lowered: LoweredProgram, options: CompileOptions, draft: NeuronCompilationMetrics) -> None:
        """Compile; ``draft`` is the graph's record up to its compilation. Raises :class:`GraphCompilationError`."""
        self._boxed_call = True
        self.lowered = lowered
        self.options = options
        self.draft = draft
        self._built: set[tuple[str, ...]] = set()
        self._run: Callable[[list[Any]], Outputs] | None = None
        if current_options() is None:
            self._run = self._load()
        else:
            self._build()

    def __call__(self, arguments: list[Any]) -> Outputs:
        """Run the graph, or answer with zeros; empties ``arguments``."""
        run = self._run
        if run is not None and entered() is None:  # the environment's mode is fixed once a graph runs
            return run(arguments)
        if current_options() is not None:
            self._build()
            return zeros(self.lowered.unit, arguments)
        self._run = self._load()
        return self._run(arguments)

    def _load(self) -> Callable[[list[Any]], Outputs]:
        unit = self.lowered.unit
        executable, origin = load(self.lowered, toolchain(self.options), select_runtime(), unit.device.index)
        self._record(origin)
        graph = CompiledGraph(unit, executable)
        return graph.plain() or graph

    def _build(self) -> None:
        tools = toolchain(self.options)
        key = tools.key(self.lowered.key)
        if key not in self._built:
            self._record(build(self.lowered, tools))
            self._built.add(key)

    def _record(self, origin: Origin) -> None:
        metrics.record(
            replace(
                self.draft,
                torch_neuronx_compile_us=origin.compile_us,
                found_in=origin.found_in,
                neff_bytes=origin.neff_bytes,
            )
        )


def zeros(unit: CompilationUnit, arguments: list[Any]) -> Outputs:
    """Return the outputs of a call that is not run: zeros where the program computes; empties ``arguments``.

    New values of arguments (the statistics of a batch normalization) are the arguments themselves, which keep theirs.
    """
    passed = list(arguments)
    arguments.clear()
    outputs: Outputs = []
    updated = dict(enumerate(unit.updated))

    @cache
    def made(result: int) -> torch.Tensor:
        spec = unit.results[result]
        device = spec.device if unit.goes_back(spec) else unit.device
        order = spec.order or tuple(range(len(spec.shape)))
        return torch.empty_permuted(spec.shape, order, dtype=spec.dtype, device=device).zero_()

    for position, source in enumerate(unit.outputs):
        match source:
            case Computed(result):
                spec = unit.results[result]
                old = passed[updated[position]] if position in updated else None
                keeps = old is not None and (old.shape, old.dtype) == (spec.shape, spec.dtype)
                outputs.append(old if keeps else made(result))
            case Viewed():
                outputs.append(view(made(source.result), source))
            case Passed(argument):
                outputs.append(passed[argument])
            case None:
                outputs.append(None)
    return outputs
