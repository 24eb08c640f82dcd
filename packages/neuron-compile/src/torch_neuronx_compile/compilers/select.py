"""Which compiler serves the selected runtime."""

from torch_neuronx import plugins
from torch_neuronx.compilers import Compiler
from torch_neuronx.errors import RuntimeUnavailableError
from torch_neuronx.runtimes.interface import Runtime


def select_compiler(runtime: Runtime) -> Compiler:
    """Return the compiler whose NEFFs ``runtime`` loads.

    Raises :class:`RuntimeUnavailableError` if no plugin registers one.
    """
    compilers = plugins.manager().compilers()
    for compiler in compilers.values():
        if compiler.runtime == runtime.name:
            return compiler
    raise RuntimeUnavailableError(
        f"No installed compiler makes NEFFs for the runtime {runtime.name!r}; installed are: "
        f"{', '.join(sorted(compilers)) or 'none'}. Set TORCH_NEURONX_RUNTIME=emulator, or install a compiler plugin."
    )
