"""The handlers that programs of the emulator call, registered with XLA in the process that runs them."""

from collections.abc import Sequence
from functools import cache

from torch_neuronx import plugins
from torch_neuronx.errors import NEFFExecutionError
from torch_neuronx_compile import _C
from torch_neuronx_compile.compilers.emulator.python_handler import capsule_of
from torch_neuronx_compile.xla_library import xla_client

_registered: set[str] = set()


@cache
def register_own_handlers() -> None:
    """Register this package's handlers."""
    for target, handler in _C.handlers().items():
        xla_client.register_custom_call_target(target, handler, platform="cpu", api_version=1)


def register_plugin_handlers(program: str, targets: Sequence[str]) -> None:
    """Register the handlers of plugins' custom calls and collectives.

    Raises :class:`NEFFExecutionError` where no installed plugin has one for a target of ``program``.
    """
    manager = plugins.manager()
    missing = [target for target in targets if target not in _registered]
    if not missing:
        return
    offered = {found.custom_call: found.handler for found in manager.lowerings().values()}
    offered |= {found.custom_call: found.handler for found in manager.collectives().values()}
    for target in missing:
        if target not in offered:
            raise NEFFExecutionError(
                f"The program {program!r} calls {target!r}, for which no installed plugin registers a handler. Install "
                "the plugin that it was compiled with, or compile it again."
            )
        handler = offered[target]()
        if callable(handler):  # a Python function; capsules are not
            handler = capsule_of(handler)
        xla_client.register_custom_call_target(target, handler, platform="cpu", api_version=1)
        _registered.add(target)


def raise_plugins_error() -> None:
    """Raise what a collective's handler has failed with, where its plugin keeps that."""
    for found in plugins.manager().collectives().values():
        if found.take_error is not None:
            found.take_error()
