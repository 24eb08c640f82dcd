"""A prefix for what one attempt of a job keeps in a store that outlives it.

``torchrun`` starts the ranks again with the store of the attempt before, in which that attempt's ranks have left their
addresses. Nothing that a launcher tells its ranks numbers the attempts alike on all hosts: so rank 0 of each attempt
makes up a name, and gives it to every rank that asks for it with a word of its own.
"""

import os
import time
import uuid
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch_neuronx_dist._compat import Store

_LOOK = 0.01
"""Seconds between two looks at the store."""


def launcher_keeps_store() -> bool:
    """Whether the store belongs to the launcher, and may hold what an earlier attempt left."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == str(True)


def agree(store: "Store", rank: int, size: int) -> str:
    """Return the name of this attempt, the same on all ranks and used by no other.

    Waits for the others for as long as the store's timeout; raises ``torch.distributed.DistStoreError`` after that.
    """
    import torch.distributed as dist

    from torch_neuronx_dist._compat import timeout_of

    if rank != 0:
        word = uuid.uuid4().hex
        store.set(f"neuron_session/ask/{rank}", word)
        store.wait([f"neuron_session/answer/{word}"])
        name = store.get(f"neuron_session/answer/{word}").decode()
        store.set(f"{name}/heard/{rank}", "")
        return name
    name = f"neuron_session/{uuid.uuid4().hex}"
    patience = timeout_of(store).total_seconds()
    end = time.monotonic() + patience
    silent = set(range(1, size))
    while True:
        for other in silent:
            if store.check([f"neuron_session/ask/{other}"]):  # of this attempt, or of one that is over
                store.set(f"neuron_session/answer/{store.get(f'neuron_session/ask/{other}').decode()}", name)
        silent = {other for other in silent if not store.check([f"{name}/heard/{other}"])}
        if not silent:
            return name
        if time.monotonic() > end:
            raise dist.DistStoreError(
                f"Ranks {sorted(silent)} of {size} did not come to the first process group within {patience:.0f} s. "
                "Look at what they printed last."
            )
        time.sleep(_LOOK)
