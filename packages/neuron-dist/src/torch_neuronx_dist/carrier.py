"""The process group that carries the bytes on the emulator: Gloo."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.distributed as dist

if TYPE_CHECKING:
    from datetime import timedelta

    from torch_neuronx_dist._compat import ProcessGroupGloo, Store


def make_carrier(store: Store, rank: int, size: int, timeout: timedelta) -> ProcessGroupGloo:
    """Make the Gloo group behind a group of backend ``neuron``. Raises RuntimeError where torch has no Gloo."""
    if not dist.is_gloo_available():
        raise RuntimeError(
            "The emulated backend 'neuron' moves data with Gloo, which this build of torch does not have. "
            "Install a torch with Gloo: the wheels on pytorch.org have it."
        )
    return dist.ProcessGroupGloo(store, rank, size, timeout=timeout)
