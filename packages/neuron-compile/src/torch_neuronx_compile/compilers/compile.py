"""A lowered program to a NEFF: the compiler is told, timed and observed here."""

import time

from torch_neuronx import plugins
from torch_neuronx.compilers import CompileRequest
from torch_neuronx.errors import NEFFCompilationError
from torch_neuronx.events import CompileFinished, CompileStarted
from torch_neuronx_compile.compilers.select import Toolchain
from torch_neuronx_compile.failures import failed
from torch_neuronx_compile.progress import shown
from torch_neuronx_compile.unit import CompiledProgram, LoweredProgram


def compile_program(lowered: LoweredProgram, tools: Toolchain) -> CompiledProgram:
    """Return ``lowered`` with its NEFF; raises :class:`GraphCompilationError`."""
    compiler, layout = tools.compiler, tools.layout
    unit, target = lowered.unit, layout.target.name
    request = CompileRequest(lowered.program, unit.name, target, layout.lnc, dict(tools.flags))
    plugins.notify(CompileStarted(unit.name, lowered.key, compiler.name, target))
    start = time.perf_counter()
    neff, error = None, None
    try:
        with shown("compiling", unit.name):
            neff = compiler.compile(request)
    except NEFFCompilationError as reason:
        error = str(reason)
        raise failed(unit.name, unit.graph, f"the compilation by {compiler.name}", error) from reason
    finally:
        seconds = time.perf_counter() - start
        size = None if neff is None else len(neff)
        plugins.notify(CompileFinished(unit.name, lowered.key, compiler.name, target, seconds, size, error))
    return CompiledProgram(lowered, neff)
