"""What a launcher such as torchrun says of this process, and the core that follows from it."""

from dataclasses import replace

from torch_neuronx import config
from torch_neuronx.errors import TooManyRanksError
from torch_neuronx.targets import CoreLayout


def pin(layout: CoreLayout) -> CoreLayout:
    """Return ``layout`` cut to the one core of this process, or as it is where no launcher started it.

    Raises :class:`TooManyRanksError` if the host has more ranks than ``layout`` has cores; on the relaxed emulator
    ranks then share cores.
    """
    rank = config.get(config.LOCAL_RANK)
    if rank is None:
        return layout
    cores = layout.logical_cores
    ranks = max(rank + 1, config.get(config.LOCAL_WORLD_SIZE) or 0)
    if ranks > len(cores) and not config.get(config.EMULATOR_RELAXED):
        raise TooManyRanksError(
            f"The launcher started {ranks} ranks on this host, which shows {len(cores)} Neuron "
            f"{'core' if len(cores) == 1 else 'cores'}. Start at most one rank per core, show more with "
            f"{config.RT_VISIBLE_CORES.name} or {config.LOGICAL_NC_CONFIG.name}=1, or set "
            f"{config.EMULATOR_RELAXED.name}=1 to let ranks share cores on the emulator."
        )
    return replace(layout, logical_cores=(cores[rank % len(cores)],))


def index_of_rank(index: int, layout: CoreLayout) -> int:
    """Return the device index meant by ``index``: 0 where it is the local rank of a process pinned to one core."""
    return 0 if len(layout.logical_cores) == 1 and index == config.get(config.LOCAL_RANK) else index
