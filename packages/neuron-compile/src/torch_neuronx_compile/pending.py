"""Graphs that another thread compiles: the forward graph, while this one goes on to the backward graph."""

import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

Graph = Callable[[list[Any]], Any]


class PendingGraph:
    """Stands for a graph that another thread compiles, with AOT Autograd's calling convention."""

    def __init__(self, name: str, compile_now: Callable[[], Graph]) -> None:
        """Start ``compile_now`` in the context (:mod:`contextvars`) of the caller."""
        self._boxed_call = True
        self._graph: Graph | None = None
        self._error: BaseException | None = None
        context = copy_context()
        self._thread = threading.Thread(target=lambda: context.run(self._compile, compile_now), name=f"neuron {name}")
        self._thread.start()

    def _compile(self, compile_now: Callable[[], Graph]) -> None:
        try:
            self._graph = compile_now()
        except BaseException as error:
            self._error = error

    def result(self) -> Graph:
        """Wait for the graph; raises what its compilation raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._graph is not None
        return self._graph

    def __call__(self, arguments: list[Any]) -> Any:
        """Run the graph; empties ``arguments``."""
        return self.result()(arguments)


def settled(graph: Graph) -> Graph:
    """Return ``graph`` once it is compiled; raises what its compilation raised."""
    return graph.result() if isinstance(graph, PendingGraph) else graph
