"""What this package provides through the project's hooks."""

from typing import TYPE_CHECKING

from torch_neuronx.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch_neuronx.compilers import Compiler
    from torch_neuronx.op_status import OpRecord


@hookimpl
def torch_neuronx_register_compilers() -> "list[Compiler]":
    """Add the emulator's compiler and the chip's, which need not be here."""
    from torch_neuronx_compile.compilers.emulator.compiler import EmulatorCompiler
    from torch_neuronx_compile.compilers.neuronx_cc.compiler import NeuronxCompiler

    return [EmulatorCompiler(), NeuronxCompiler()]


@hookimpl
def torch_neuronx_op_statuses() -> "Mapping[str, OpRecord] | None":
    """Add to the core's table what compiled graphs do with each operator."""
    from torch_neuronx_compile.support.statuses import live_table

    return live_table()


@hookimpl
def torch_neuronx_device_opened() -> None:
    """Let ``torch.compile`` without a backend compile for the device."""
    from torch_neuronx_compile.capture.default_backend import become_default

    become_default()
