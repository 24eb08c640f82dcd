"""The task that writes a program for people. Runs in the worker."""

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from torch_neuronx_compile.worker.canonical import new_context


def stablehlo_text(program: bytes) -> str:
    """Return a portable artifact as text."""
    with new_context() as context, ir.Location.unknown():
        module = stablehlo.deserialize_portable_artifact(context, program)
        return str(module.operation.get_asm(enable_debug_info=True))
