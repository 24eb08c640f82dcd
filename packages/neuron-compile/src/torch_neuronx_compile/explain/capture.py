"""Tells listeners of every graph that the backend receives."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import fx

from torch_neuronx_compile.unit import GraphKind

Listener = Callable[[fx.GraphModule | None, GraphKind, str], object]

_listeners: list[Listener] = []


def captured(module: fx.GraphModule | None, kind: GraphKind, name: str) -> None:
    """Tell the listeners of an AOT graph that is about to be compiled, in the thread that compiles it.

    ``module`` is ``None`` for a graph that was not traced: a cache of PyTorch's had it.
    """
    for listener in tuple(_listeners):
        listener(module, kind, name)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Have ``listener`` told of every graph meanwhile."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
