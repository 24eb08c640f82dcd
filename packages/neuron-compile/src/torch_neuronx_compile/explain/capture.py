"""Tells listeners of every graph that the backend receives."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from torch import fx

from torch_neuronx_compile.unit import GraphKind

Listener = Callable[[fx.GraphModule | None, GraphKind, str], object]

_listeners: list[Listener] = []

current: ContextVar[str | None] = ContextVar("torch_neuronx_compile_current_graph", default=None)
"""The graph that is compiled in this context, also where another thread does it."""


def captured(module: fx.GraphModule | None, kind: GraphKind, name: str) -> None:
    """Tell the listeners of an AOT graph that is about to be compiled, in the context that compiles it.

    ``module`` is ``None`` for a graph that was not traced: a cache of PyTorch's had it.
    """
    current.set(name)
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
