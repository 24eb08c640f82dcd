"""Compile a list of models ahead of time, and report on each graph."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text
from torch.utils._pytree import tree_leaves

from torch_neuronx.compiler import CompileOptions, compile_only
from torch_neuronx_compile import metrics
from torch_neuronx_compile.metrics import NeuronCompilationMetrics

Entry = tuple[Callable[..., Any], Any]
"""A model or function, and the inputs of one call: a tuple of them, a mapping of keyword arguments, or a tensor."""


class Status(StrEnum):
    """What became of a graph."""

    COMPILED = "compiled"
    CACHED = "cached"
    """A cache had the NEFF."""
    FAILED = "failed"
    NOTHING = "nothing to compile"
    """The call compiled no graph: it has none, or this process has compiled them all before."""


@dataclass(frozen=True, slots=True)
class PrecompiledGraph:
    """One row of a report: a graph, or the call that failed or compiled none."""

    graph: str
    status: Status
    seconds: float = 0.0
    """Passes, lowering and compilation."""
    neff_bytes: int = 0
    error: Exception | None = None

    @property
    def cache_hit(self) -> bool:
        """Whether a cache had the NEFF."""
        return self.status is Status.CACHED


@dataclass(frozen=True, slots=True)
class PrecompileReport:
    """What :func:`precompile` did; as text, a table."""

    rows: tuple[PrecompiledGraph, ...]

    @property
    def failed(self) -> tuple[PrecompiledGraph, ...]:
        """The rows of calls that failed, each with its ``error``."""
        return tuple(row for row in self.rows if row.status is Status.FAILED)

    def table(self) -> Table:
        """Return the table for rich."""
        table = Table("graph", "status")
        for title in ("time", "cache hit", "size"):
            table.add_column(title, justify="right")
        for row in self.rows:
            size = f"{row.neff_bytes:,} B" if row.neff_bytes else ""
            hit = "" if row.status in (Status.FAILED, Status.NOTHING) else "yes" if row.cache_hit else "no"
            table.add_row(Text(row.graph), row.status, f"{row.seconds:.2f} s", hit, size)
        failures = [f"{row.graph}: {_first_line(row.error)}" for row in self.failed]
        if failures:
            table.caption = Text("\n".join(failures))
        return table

    def __str__(self) -> str:
        console = Console(width=160, color_system=None)
        with console.capture() as captured:
            console.print(self.table())
        return captured.get()


def precompile(
    entries: Iterable[Entry], options: CompileOptions | None = None, *, console: Console | None = None
) -> PrecompileReport:
    """Compile every graph of ``(model, example_inputs)`` pairs without running one; print and return a table.

    Each model is called once in compile-only mode, with gradients where it asks for them, so that backward graphs are
    compiled too; ``.grad`` stays as it is. A call that fails is a row of the report, and the next one follows. Progress
    and table go to ``console``, by default standard output; progress only if that is a terminal.
    """
    console = console or Console()
    entries = list(entries)
    rows: list[PrecompiledGraph] = []
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar as progress:
        task = progress.add_task("compiling", total=len(entries))
        for model, inputs in entries:
            progress.update(task, description=escape(_label(model)))
            rows += _compile(model, inputs, options)
            progress.advance(task)
    report = PrecompileReport(tuple(rows))
    if console.is_terminal:
        console.print(report.table())
    else:
        console.out(str(report), end="", highlight=False)
    return report


def _compile(model: Callable[..., Any], inputs: Any, options: CompileOptions | None) -> list[PrecompiledGraph]:
    failure: Exception | None = None
    with metrics.collected() as records, compile_only(options):
        try:
            _call(model, inputs)
        except Exception as error:  # whatever the model or the compiler raises is the report's business
            failure = error
    rows = [_row(record) for record in records]
    if failure is not None:
        rows.append(PrecompiledGraph(_label(model), Status.FAILED, error=failure))
    return rows or [PrecompiledGraph(_label(model), Status.NOTHING)]


def _call(model: Callable[..., Any], inputs: Any) -> None:
    compiled = torch.compile(model, backend="neuron")
    if isinstance(inputs, Mapping):
        outputs = compiled(**inputs)
    else:
        inputs = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
        outputs = compiled(*inputs)
    differentiable = [out for out in tree_leaves(outputs) if isinstance(out, torch.Tensor) and out.requires_grad]
    parameters = list(model.parameters()) if isinstance(model, torch.nn.Module) else []
    tensors = (*parameters, *tree_leaves(inputs))
    leaves = [leaf for leaf in tensors if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    if differentiable and leaves:
        seeds = [torch.zeros_like(out) for out in differentiable]
        torch.autograd.grad(differentiable, leaves, seeds, allow_unused=True)


def _row(record: NeuronCompilationMetrics) -> PrecompiledGraph:
    spent = record.torch_neuronx_fx_passes_us + record.torch_neuronx_lower_us + record.torch_neuronx_compile_us
    status = Status.COMPILED if record.found_in is None else Status.CACHED
    return PrecompiledGraph(record.graph_name, status, spent / 1e6, record.neff_bytes)


def _label(model: Callable[..., Any]) -> str:
    return getattr(model, "__name__", type(model).__name__)


def _first_line(error: Exception | None) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"
