"""The compiled part of the package."""

from collections.abc import Callable
from datetime import timedelta

import torch

from torch_neuronx_dist._compat import Backend, Store

class ProcessGroupNeuron(Backend):
    class Options(Backend.Options):
        def __init__(self, timeout: timedelta = ...) -> None: ...

    def __init__(self, store: Store, rank: int, size: int, options: Options) -> None: ...
    @property
    def options(self) -> Options: ...
    def perform_nocolor_split(self, device: torch.device) -> None: ...

def set_carrier_factory(factory: Callable[[Store, int, int, timedelta], Backend]) -> None: ...
