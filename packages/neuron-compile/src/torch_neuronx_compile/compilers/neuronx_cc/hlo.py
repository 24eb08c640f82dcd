"""The task that turns StableHLO into what ``neuronx-cc`` reads. Runs in the worker."""

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from torch_neuronx_compile.compilers.composites import expand_composites
from torch_neuronx_compile.worker.canonical import new_context
from torch_neuronx_compile.worker.protocol import WorkerTaskError
from torch_neuronx_compile.xla_library import to_hlo


def hlo_module(program: bytes) -> bytes:
    """Return a portable StableHLO artifact as a serialized ``HloModuleProto``; raises :class:`WorkerTaskError`."""
    with new_context() as context, ir.Location.unknown():
        try:
            module = stablehlo.deserialize_portable_artifact(context, program)
            expand_composites(module)
            return to_hlo(str(module.operation.get_asm(enable_debug_info=False)))
        except (ir.MLIRError, RuntimeError, ValueError) as error:
            raise WorkerTaskError(f"The program does not convert to HLO: {error}") from None
