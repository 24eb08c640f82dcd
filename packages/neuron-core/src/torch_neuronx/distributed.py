"""The door to the dist extra: ``torch.distributed``'s backend ``neuron``.

Importing it changes nothing; the backend registers itself when torch is imported, if the extra is installed.
"""

from typing import Any

from torch_neuronx import extras


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(extras.load("dist", "torch_neuronx_dist", f"torch_neuronx.distributed.{name}"), name)
