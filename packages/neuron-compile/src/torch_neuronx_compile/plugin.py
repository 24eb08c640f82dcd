"""What this package provides through the project's hooks."""

from typing import TYPE_CHECKING

from torch_neuronx.hookspecs import hookimpl

if TYPE_CHECKING:
    from torch_neuronx.compilers import Compiler


@hookimpl
def torch_neuronx_register_compilers() -> "list[Compiler]":
    """Add the emulator's compiler."""
    from torch_neuronx_compile.compilers.emulator.compiler import EmulatorCompiler

    return [EmulatorCompiler()]
