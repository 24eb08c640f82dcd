"""Which runtime this process uses."""

from collections.abc import Mapping
from functools import cache

from torch_neuronx import config
from torch_neuronx.compiler import current_options
from torch_neuronx.errors import ConfigurationError, RuntimeUnavailableError
from torch_neuronx.logs import logger
from torch_neuronx.runtimes.interface import Runtime

AUTO = "auto"


def select_runtime(environ: Mapping[str, str] | None = None) -> Runtime:
    """Return the runtime that ``TORCH_NEURONX_RUNTIME`` names; nothing is opened.

    ``auto`` is ``nrt`` where a Neuron device and libnrt exist, else the emulator. Raises :class:`ConfigurationError`
    for a name that nobody registers and :class:`RuntimeUnavailableError` for a runtime that cannot start here.
    """
    from torch_neuronx import plugins  # plugins carry runtimes

    runtimes = plugins.manager().runtimes()
    name = config.get(config.RUNTIME, environ)
    if name == AUTO:
        return runtimes["nrt" if runtimes["nrt"].available().ok else "emulator"]
    if name not in runtimes:
        names = ", ".join((AUTO, *sorted(runtimes)))
        raise ConfigurationError(f"There is no runtime {name!r}. Set {config.RUNTIME.name} to one of: {names}.")
    availability = runtimes[name].available()
    if not availability.ok:
        raise RuntimeUnavailableError(
            f"The runtime {name!r} cannot start: {availability.reason}. Set {config.RUNTIME.name}=emulator to run on "
            "this machine's CPU."
        )
    return runtimes[name]


def select_device_runtime() -> Runtime:
    """Return the runtime that holds this process's tensors: the selected one.

    In compile-only mode one that cannot start here, or has no eager mode, is no error: the emulator holds the tensors.
    Raises what :func:`select_runtime` raises otherwise.
    """
    from torch_neuronx import plugins

    if current_options() is None:
        return select_runtime()
    try:
        runtime = select_runtime()
    except RuntimeUnavailableError as error:
        _say_emulated(str(error))
    else:
        if runtime.eager:
            return runtime
        _say_emulated(f"The runtime {runtime.name!r} has no eager mode.")
    return plugins.manager().runtimes()["emulator"]


@cache
def _say_emulated(why: str) -> None:
    logger("device").warning("Compile-only: tensors are kept in this machine's memory. %s", why)
