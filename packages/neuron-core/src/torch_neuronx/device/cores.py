"""Which cores there are, which one is current, and waiting for them."""

from types import TracebackType
from typing import TypeAlias

import torch

from torch_neuronx import _C
from torch_neuronx.device._opening import layout, lazy_init
from torch_neuronx.runtimes.launcher import index_of_rank

Device: TypeAlias = torch.device | str | int | None
"""A core: ``torch.device("neuron:1")``, ``"neuron:1"``, ``1``, or ``None`` for the current one."""


def device_index(device: Device = None, *, check: bool = True) -> int:
    """Return the index of ``device``; the current core's for ``None`` and for ``"neuron"``.

    Raises :class:`ValueError` for a device of another type and, with ``check``, :class:`DeviceError` for a core that
    this process does not see.
    """
    if device is None:
        index = -1
    elif isinstance(device, int) and not isinstance(device, bool):
        index = device
    else:
        parsed = torch.device(device)
        if parsed.type != "neuron":
            raise ValueError(f"Expected a neuron device, but got {parsed}. Pass 'neuron:0', an index, or None.")
        index = -1 if parsed.index is None else parsed.index
    return int(_C.check_device(index)) if check else index


_get_device_index = device_index


def is_available() -> bool:
    """Return whether a core is visible. Opens nothing and never raises."""
    return device_count() > 0


def device_count() -> int:
    """Return how many logical cores this process sees (4 of one Trn2 chip by default). Opens nothing."""
    return int(_C.device_count())


def is_initialized() -> bool:
    """Return whether the device is open in this process."""
    return bool(_C.is_initialized())


def init() -> None:
    """Open the device now instead of on its first use. Raises what makes it unusable."""
    lazy_init()


def current_device() -> int:
    """Return the index of the current core of this thread."""
    lazy_init()
    return int(_C.current_device())


def set_device(device: Device) -> None:
    """Make ``device`` the current core of this thread. Raises :class:`DeviceError` for one that is not visible.

    A process that a launcher started sees one core, ``neuron:0``; its local rank is taken as a name of that core.
    """
    lazy_init()
    index = device_index(device, check=False)
    if index >= 0:
        _C.set_device(index_of_rank(index, layout()))


def synchronize(device: Device = None) -> None:
    """Wait until the core has done everything that was queued on it.

    The emulator is done when a call returns; code that measures or reads counters must not rely on that.
    """
    lazy_init()
    torch.accelerator.synchronize(device_index(device))


def exchange_device(index: int) -> int:
    """Make core ``index`` current and return the previous one's index; a negative index changes nothing."""
    return int(_C.exchange_device(index))


maybe_exchange_device = exchange_device


class device:
    """Context manager that makes a core current: ``with torch.neuron.device(1): ...``."""

    def __init__(self, device: Device) -> None:
        self.idx = device_index(device, check=False)
        self.prev_idx = -1

    def __enter__(self) -> None:
        lazy_init()
        self.prev_idx = exchange_device(self.idx)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        exchange_device(self.prev_idx)


class device_of(device):
    """Context manager that makes a tensor's core current; does nothing for a tensor elsewhere."""

    def __init__(self, obj: torch.Tensor) -> None:
        super().__init__(obj.device.index if obj.device.type == "neuron" else -1)
