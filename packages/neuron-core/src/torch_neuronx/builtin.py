"""The core's own plugin: what it provides goes through the hooks that strangers use."""

from torch_neuronx import metrics
from torch_neuronx.events import Event
from torch_neuronx.hookspecs import hookimpl
from torch_neuronx.runtimes.emulator import EmulatorRuntime
from torch_neuronx.runtimes.interface import Runtime
from torch_neuronx.runtimes.nrt import NrtRuntime
from torch_neuronx.targets import TRN2, TRN3, Target


@hookimpl
def torch_neuronx_register_targets() -> list[Target]:
    """Add the chips that the project knows."""
    return [TRN2, TRN3]


@hookimpl
def torch_neuronx_register_runtimes() -> list[Runtime]:
    """Add the chip's runtime and the emulator."""
    return [NrtRuntime(), EmulatorRuntime()]


@hookimpl
def torch_neuronx_observe(event: Event) -> None:
    """Count the event in :mod:`torch_neuronx.metrics`."""
    metrics.count(event)
