"""What the emulator runs for StableHLO's collectives: handlers of XLA that use this process's groups."""

from torch_neuronx.lowerings import Collective
from torch_neuronx_dist.extension import load

OPERATIONS = ("all_gather", "all_reduce", "all_to_all", "collective_broadcast", "reduce_scatter")
_FINGERPRINT = "1"


def collectives() -> list[Collective]:
    """Return every collective operation that the emulator can run."""
    return [
        Collective(name, f"neuron_dist_{name}", lambda name=name: _handler(name), _FINGERPRINT, _take_error)  # type: ignore[misc]
        for name in OPERATIONS
    ]


def _handler(name: str) -> object:
    from torch_neuronx_dist._compat import wrapped_backend
    from torch_neuronx_dist.graphs.replica_groups import find_group

    extension = load()
    extension.set_group_finder(find_group)
    extension.set_backend_finder(wrapped_backend)
    return extension.graph_handlers()[name]


def _take_error() -> None:
    load().take_graph_error()
