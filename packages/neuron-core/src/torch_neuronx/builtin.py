"""The core's own plugin: what it provides goes through the hooks that strangers use."""

from torch_neuronx.hookspecs import hookimpl
from torch_neuronx.targets import TRN2, TRN3, Target


@hookimpl
def torch_neuronx_register_targets() -> list[Target]:
    """Add the chips that the project knows."""
    return [TRN2, TRN3]
