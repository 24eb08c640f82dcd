"""A graph as each stage saw it, for people: the files of :mod:`torch_neuronx_compile.artifacts`."""

from torch_neuronx import config
from torch_neuronx_compile.artifacts import Stage, keep, wanted
from torch_neuronx_compile.lowering.lower import task_arguments
from torch_neuronx_compile.unit import LoweredProgram
from torch_neuronx_compile.worker.client import worker


def show_stages(lowered: LoweredProgram) -> None:
    """Write the FX graph, the module in the torch dialect and the StableHLO program, if artifacts are wanted."""
    if not wanted():
        return
    from torch_neuronx_compile.lowering.importer import import_graph  # torch-mlir takes half a second

    unit = lowered.unit
    keep(Stage.FX, unit.name, lambda: f"{unit.graph}\n")
    keep(Stage.TORCH, unit.name, lambda: torch_text(import_graph(unit.graph)))
    keep(Stage.STABLEHLO, unit.name, lambda: stablehlo_text(lowered))


def torch_text(module: bytes) -> str:
    """Return a module in the torch dialect as text, with the lines of the user's program as locations."""
    from torch_mlir import ir
    from torch_mlir.dialects import torch as torch_dialect

    context = ir.Context()
    torch_dialect.register_dialect(context)
    with context:
        return str(ir.Module.parse(module).operation.get_asm(enable_debug_info=True))


def stablehlo_text(lowered: LoweredProgram) -> str:
    """Return a program as text; with the lines of the user's program, which it has not, where artifacts are kept.

    For those it is lowered once more.
    """
    if config.get(config.PRESERVE_COMPILATION_ARTIFACTS):
        task, arguments = "torch_neuronx_compile.worker.lower:lower_for_people", task_arguments(lowered.unit.graph)
    else:
        task, arguments = "torch_neuronx_compile.worker.text:stablehlo_text", {"program": lowered.program}
    text: str = worker().call(task, **arguments)
    return text
