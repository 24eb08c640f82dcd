"""NEFFs that another process made: the persistent store, found by hook."""

from collections.abc import Callable
from typing import Any

from torch_neuronx.compilers import HostDependent
from torch_neuronx_compile.compilers.select import Toolchain
from torch_neuronx_compile.stores import find_or_make
from torch_neuronx_compile.unit import LoweredProgram

KIND = "neff"


def find_or_compile(lowered: LoweredProgram, tools: Toolchain, compile_now: Callable[[], bytes]) -> tuple[bytes, bool]:
    """Return the NEFF of ``lowered``, and whether ``compile_now`` had to make it.

    The key has everything that can change the bytes, and neither names nor places: the same model under another name,
    or from another directory, is found. Of several processes that want one program at once, one compiles it.
    """
    return find_or_make(KIND, _parts(lowered, tools), compile_now, {"graph": lowered.unit.name})


def _parts(lowered: LoweredProgram, tools: Toolchain) -> dict[str, Any]:
    compiler, layout = tools.compiler, tools.layout
    parts = {
        "program": lowered.program,
        "kernels": lowered.key,
        "compiler": compiler.name,
        "compiler version": compiler.version(),
        "target": layout.target.name,
        "lnc": layout.lnc,
        "flags": dict(tools.flags),
    }
    return parts | (dict(compiler.host()) if isinstance(compiler, HostDependent) else {})
