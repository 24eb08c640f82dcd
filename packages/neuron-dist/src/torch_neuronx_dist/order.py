"""The chip's rule of order: a rank makes its first process group before its first tensor on the device."""

import torch.distributed as dist

from torch_neuronx import config
from torch_neuronx_dist.errors import GroupOrderError

_MOVE = "Move torch.distributed.init_process_group(...) above the first use of a tensor on device neuron"


class _Process:
    tensor_came_first = False
    """Whether a tensor was made on the device while there was no process group."""


def launched() -> bool:
    """Whether a launcher made this process one of several, or one with a place of its own."""
    return config.get(config.LOCAL_RANK) is not None or (config.get(config.WORLD_SIZE) or 1) > 1


def object_to_first_tensor() -> GroupOrderError | None:
    """Return the error for a rank without a process group; note the tensor where there is no launcher."""
    if config.get(config.EMULATOR_RELAXED) or dist.is_initialized():
        return None
    if launched():
        return GroupOrderError(
            "This process was started as a rank of a distributed job, and makes a tensor on device neuron before its "
            f"first process group. {_MOVE}; torch.neuron.set_device() may stay where it is."
        )
    _Process.tensor_came_first = True
    return None


def check_group_comes_first() -> None:
    """Raise GroupOrderError if this process made a tensor on the device before its first process group."""
    if _Process.tensor_came_first and not config.get(config.EMULATOR_RELAXED):
        raise GroupOrderError(
            "This process made a tensor on device neuron before its first process group, after which the chip cannot "
            f"join one. {_MOVE} (model.to('neuron') is one), and start the program again."
        )
