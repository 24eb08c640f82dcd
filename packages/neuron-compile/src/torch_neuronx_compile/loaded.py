"""Programs that this process has loaded, by content: equal graphs share one executable."""

import threading

from torch_neuronx import plugins
from torch_neuronx.events import CacheLayer, CacheLookedUp
from torch_neuronx.runtimes.interface import Executable, Runtime
from torch_neuronx_compile.artifacts import keep_artifact
from torch_neuronx_compile.compilers.compile import compile_program
from torch_neuronx_compile.compilers.neff_store import find_or_compile
from torch_neuronx_compile.compilers.select import select_compiler
from torch_neuronx_compile.unit import LoweredProgram

_lock = threading.Lock()
_loaded: dict[tuple[str, ...], Executable] = {}


def load(lowered: LoweredProgram, runtime: Runtime, core: int) -> tuple[Executable, bool]:
    """Return the executable of ``lowered`` on device index ``core``, and whether it had to be compiled.

    Raises :class:`GraphCompilationError` or what the runtime raises.
    """
    layout = runtime.layout()
    compiler = select_compiler(runtime)
    key = (lowered.key, compiler.name, compiler.version(), layout.target.name, str(layout.lnc), str(core))
    with _lock:
        found = _loaded.get(key)
    plugins.notify(CacheLookedUp(lowered.key, CacheLayer.MEMORY, found is not None, 0.0))
    if found is not None:
        return found, False
    neff, made = find_or_compile(lowered, compiler, layout, lambda: compile_program(lowered, runtime).neff)
    keep_artifact(lowered.unit.name, "program.neff", neff)
    executable = runtime.load(neff, core)
    with _lock:
        return _loaded.setdefault(key, executable), made
