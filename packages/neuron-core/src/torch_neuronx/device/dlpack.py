"""DLPack between a core and the CPU without a copy, which only the emulator can do: its device memory is host memory.

PyTorch's own ``torch.from_dlpack`` and ``numpy.from_dlpack`` take a tensor of the device by copying
(``numpy.from_dlpack(x, device="cpu")``) or refuse: DLPack has no name for a renamed backend.
"""

from typing import Any

import torch
from torch.utils import dlpack

from torch_neuronx import _C, config
from torch_neuronx.device.cores import Device, device_index
from torch_neuronx.errors import ConfigurationError


def to_dlpack(tensor: torch.Tensor) -> torch.Tensor:
    """Return a CPU tensor over the bytes of ``tensor``, which every consumer of DLPack takes; nothing is copied.

    Shape, dtype and strides stay. Raises :class:`ValueError` for a tensor of another device, :class:`BufferError` for
    one that requires grad, :class:`ConfigurationError` in protected mode.
    """
    if tensor.device.type != "neuron":
        raise ValueError(
            f"Expected a tensor on device neuron, but it is on {tensor.device}. Pass it to DLPack as it is."
        )
    if tensor.requires_grad:
        raise BufferError("A tensor that requires grad cannot be shared through DLPack. Pass tensor.detach().")
    _refuse_in_protected_mode("tensor.cpu()")
    return _C.cpu_alias(tensor)


def from_dlpack(source: Any, device: Device = "neuron") -> torch.Tensor:
    """Return a tensor of a core over the CPU memory of ``source``, an object with ``__dlpack__``; nothing is copied.

    The memory counts as the core's and stays alive with the tensor. Raises :class:`ValueError` for memory that is not
    the CPU's, :class:`ConfigurationError` in protected mode.
    """
    _refuse_in_protected_mode("torch.from_dlpack(source).to('neuron')")
    host = dlpack.from_dlpack(source)
    if host.device.type != "cpu":
        raise ValueError(
            f"Expected CPU memory, but the source is on {host.device}. Copy it with .to('neuron') instead."
        )
    return _C.adopt(host, device_index(device))


def _refuse_in_protected_mode(instead: str) -> None:
    if config.get(config.EMULATOR_PROTECT):
        raise ConfigurationError(
            f"{config.EMULATOR_PROTECT.name} is on, so device memory cannot be shared with the CPU. "
            f"Copy with {instead}, or unset the variable."
        )
