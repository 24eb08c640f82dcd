"""Streams and events, as ``torch.cuda`` has them."""

from types import TracebackType
from typing import Any, Self

import torch

from torch_neuronx.device._opening import lazy_init
from torch_neuronx.device.cores import Device, device_index, exchange_device


class Stream(torch.Stream):
    """A queue of work on one core. ``priority`` is accepted for compatibility; all queues are alike."""

    def __new__(cls, device: Device = None, priority: int = 0, **kwargs: Any) -> Self:
        """Make a stream on a core, or name an existing one by ``stream_id``, ``device_index``, ``device_type``."""
        lazy_init()
        if "stream_id" in kwargs:
            return super().__new__(cls, **kwargs)
        return super().__new__(cls, torch.device("neuron", device_index(device)), priority=priority, **kwargs)

    def __repr__(self) -> str:
        return f"<torch.neuron.Stream device={self.device} id={self.stream_id}>"


class _EventType(type):
    """What makes an event of the device an instance of :class:`Event`."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Event) and instance.device.type == "neuron"


class Event(torch.Event, metaclass=_EventType):
    """A mark in a stream. Time between two needs ``enable_timing=True`` on both.

    Calling the class makes a plain :class:`torch.Event`, because torch takes no subclass where it expects an event.
    """

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> torch.Event:  # type: ignore[misc]
        """Make an event; it belongs to the core of the first stream that records it."""
        if interprocess:
            raise ValueError("Events of device neuron cannot be shared between processes. Leave interprocess=False.")
        lazy_init()
        return torch.Event("neuron", enable_timing=enable_timing, blocking=blocking)


def _own(stream: torch.Stream) -> Stream:
    return Stream(stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type)


def current_stream(device: Device = None) -> Stream:
    """Return the stream that work of this thread goes to on a core."""
    lazy_init()
    return _own(torch.accelerator.current_stream(device_index(device)))


def default_stream(device: Device = None) -> Stream:
    """Return the stream that a core starts with."""
    lazy_init()
    index = device_index(device)
    device_type = torch.accelerator.current_stream(index).device_type
    return Stream(stream_id=0, device_index=index, device_type=device_type)


def set_stream(stream: torch.Stream) -> None:
    """Make ``stream`` the current one of its core, and its core the current core."""
    torch.accelerator.set_stream(stream)


class StreamContext:
    """Context manager behind :func:`stream`."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream
        self._previous: Stream | None = None
        self._previous_device = -1

    def __enter__(self) -> None:
        if self.stream is None:
            return
        lazy_init()
        self._previous_device = exchange_device(-1)
        self._previous = current_stream(self.stream.device_index)
        set_stream(self.stream)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._previous is not None:
            set_stream(self._previous)
            exchange_device(self._previous_device)


def stream(stream: torch.Stream | None) -> StreamContext:
    """Return a context manager that sends work to ``stream``; ``None`` changes nothing."""
    return StreamContext(stream)
