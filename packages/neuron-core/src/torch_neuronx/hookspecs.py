"""Every hook of the project.

A plugin is a module or an object with functions marked by :data:`hookimpl`, named in the entry-point group
``torch_neuronx.plugins`` of its distribution::

    [project.entry-points."torch_neuronx.plugins"]
    my-plugin = "my_package.plugin"

Hooks are called when their answer is first needed, never by ``import torch``. A plugin module should import heavy
things (torch, compilers) inside its functions.
"""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from torch._ops import OpOverload

    from torch_neuronx.compilers import Compiler
    from torch_neuronx.events import Event
    from torch_neuronx.kernels import KernelOffer
    from torch_neuronx.lowerings import Collective, Expansion, Lowering
    from torch_neuronx.op_status import OpRecord
    from torch_neuronx.runtimes.interface import Runtime
    from torch_neuronx.targets import CoreLayout, Target

PROJECT = "torch_neuronx"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks a function as the implementation of the hook of its name."""

# Plugins --------------------------------------------------------------------------------------------------------------


@hookspec
def torch_neuronx_add_hookspecs() -> object:
    """Add hooks to this list: return a module or object whose functions carry a pluggy ``HookspecMarker``.

    Called once, after every plugin was imported and before any is checked, so that plugins may implement each
    other's hooks. ``torch-neuronx-cache`` adds the hook for cache stores in this way.

    :return: An object with hook specifications of the project ``torch_neuronx``.

    Example::

        @hookimpl
        def torch_neuronx_add_hookspecs():
            return my_package.hookspecs
    """


# Hardware -------------------------------------------------------------------------------------------------------------


@hookspec
def torch_neuronx_register_targets() -> Iterable[Target]:
    """Add kinds of chips.

    Called by the core when it lays out the cores, when the device is first used. Two targets of one name are an
    error that names both distributions.

    :return: The targets. ``NEURON_PLATFORM_TARGET_OVERRIDE`` chooses one by name.

    Example::

        @hookimpl
        def torch_neuronx_register_targets():
            return [dataclasses.replace(torch_neuronx.targets.TRN2, name="trn2-lab", hbm_per_chip=8 * GIB)]
    """


@hookspec
def torch_neuronx_register_runtimes() -> Iterable[Runtime]:
    """Add runtimes: what holds device memory and runs NEFFs.

    Called by the core when it selects a runtime, when the device is first used.

    :return: Runtimes; making one must not open a device. ``TORCH_NEURONX_RUNTIME`` chooses one by name.

    Example::

        @hookimpl
        def torch_neuronx_register_runtimes():
            return [RemoteRuntime()]
    """


@hookspec
def torch_neuronx_device_opened() -> None:
    """Learn that the device is used for the first time in this process.

    Called by the core once, when the device is open and before the first tensor is made. What is not to happen at
    import can be done here; keep it short, everybody who uses the device waits for it.

    Example::

        @hookimpl
        def torch_neuronx_device_opened():
            my_package.get_ready()
    """


@hookspec(firstresult=True)
def torch_neuronx_first_tensor(layout: CoreLayout) -> Exception | None:
    """Object to the first tensor on the device.

    Called by the core when PyTorch is about to make it, after the device was opened; asked again for the next tensor
    as long as somebody objects. ``torch-neuronx-dist`` asks ranks for a process group first.

    :param layout: The cores that this process sees.
    :return: An error, which is raised, or ``None`` to let the tensor be made.

    Example::

        @hookimpl
        def torch_neuronx_first_tensor(layout):
            return None if my_package.licensed() else RuntimeError("There is no licence. Get one.")
    """


# Operators ------------------------------------------------------------------------------------------------------------


@hookspec(firstresult=True)
def torch_neuronx_op_statuses(target: Target) -> Mapping[str, OpRecord] | None:
    """Replace the operator table that the core ships by a live one.

    Called by the core when the table is first needed, on one plugin after the other in the reverse order of their
    names, until one returns a table.

    :param target: The target in use.
    :return: Every operator's record by qualified name with overload (``aten::add.Tensor``), or ``None`` to leave
        the table to others.

    Example::

        @hookimpl
        def torch_neuronx_op_statuses(target):
            return {"aten::add.Tensor": OpRecord(OpStatus.NATIVE)}
    """


@hookspec
def torch_neuronx_register_decompositions() -> Mapping[OpOverload, Callable[..., Any]]:
    """Add decompositions of operators for compiled graphs.

    Called by the compiler package before it traces its first graph. A later plugin's entry replaces the same
    operator's earlier one, built-in ones included.

    :return: Functions by operator, as in :func:`torch._decomp.get_decompositions`.

    Example::

        @hookimpl
        def torch_neuronx_register_decompositions():
            import torch

            return {torch.ops.mylib.scale.default: lambda x, s: x * s}
    """


@hookspec
def torch_neuronx_register_lowerings() -> Iterable[Lowering]:
    """Add operators that cross the compiler as StableHLO custom calls.

    Called by the compiler package before it lowers its first graph. Two lowerings of one operator are an error.

    :return: The lowerings, each with its handler for the emulator.

    Example::

        @hookimpl
        def torch_neuronx_register_lowerings():
            return [Lowering("mylib::scale.default", "MyScale", handler=my_package.scale_capsule, fingerprint="1")]
    """


@hookspec
def torch_neuronx_register_expansions() -> Iterable[Expansion]:
    """Add operators that become operations of StableHLO.

    Called by the compiler package before it lowers its first graph. Two expansions of one operator are an error.

    :return: The expansions; what builds the operations runs in the compile worker, without torch.

    Example::

        @hookimpl
        def torch_neuronx_register_expansions():
            return [Expansion("mylib::scale.default", build="my_package.stablehlo:scale", fingerprint="1")]
    """


@hookspec
def torch_neuronx_register_collectives() -> Iterable[Collective]:
    """Say what the emulator runs for the collective operations of StableHLO.

    Called by the emulator's compiler when it compiles and when it loads a program. A program with a collective that
    nobody registers is an error: it would run as if the other ranks were not there. Two of one operation are an error.

    :return: One record per operation: its name, the custom-call target it becomes, and the handler of that target.

    Example::

        @hookimpl
        def torch_neuronx_register_collectives():
            return [Collective("all_reduce", "my_all_reduce", handler=my_package.all_reduce_capsule, fingerprint="1")]
    """


@hookspec
def torch_neuronx_register_kernels() -> Iterable[KernelOffer]:
    """Offer kernels in place of ATen operators.

    Called by whoever is about to run or to compile such an operator, once for all operators.

    :return: The offers. For one call the offer of the highest priority whose predicate is true is used.

    Example::

        @hookimpl
        def torch_neuronx_register_kernels():
            return [KernelOffer("my-rms-norm", "aten::rms_norm", rms_norm, lambda x, *rest: x.shape[-1] % 128 == 0)]
    """


# Compilation ----------------------------------------------------------------------------------------------------------


@hookspec
def torch_neuronx_register_compilers() -> Iterable[Compiler]:
    """Add compilers from StableHLO to NEFF.

    Called by the compiler package when it compiles, and by the emulator when it loads a NEFF. The compiler whose
    ``runtime`` is the selected runtime's name is used.

    :return: Compilers; making one must not start anything.

    Example::

        @hookimpl
        def torch_neuronx_register_compilers():
            return [MyCompiler()]
    """


# Observation ----------------------------------------------------------------------------------------------------------


@hookspec
def torch_neuronx_observe(event: Event) -> None:
    """Receive an event: a compilation, a cache look-up, an execution, a fallback or a graph break.

    Called in the thread in which it happens, right after it happened; a slow observer slows the program. One that
    raises is named in one warning and not called again in this process.

    :param event: One of the dataclasses of :mod:`torch_neuronx.events`; new kinds may be added, so ignore others.

    Example::

        @hookimpl
        def torch_neuronx_observe(event):
            if isinstance(event, CompileFinished):
                print(event.graph, event.seconds)
    """
