"""Graphs that run operator by operator, where falling back is allowed."""

from collections.abc import Callable
from typing import Any

from torch import fx

from torch_neuronx import plugins
from torch_neuronx.errors import NEFFExecutionError
from torch_neuronx.events import GraphFellBack
from torch_neuronx.logs import logger


class EagerGraph:
    """Runs an AOT graph on the device with eager operators."""

    def __init__(self, module: fx.GraphModule) -> None:
        self._boxed_call = True
        self.module = module

    def __call__(self, arguments: list[Any]) -> Any:
        """Run the graph; empties ``arguments``."""
        given = list(arguments)
        arguments.clear()
        return self.module(*given)


class GraphWithFallback:
    """Runs a compiled graph, and the graph it was made from after a run has failed."""

    def __init__(self, name: str, compiled: Callable[[list[Any]], Any], eager: EagerGraph) -> None:
        self._boxed_call = True
        self._name = name
        self.compiled: Callable[[list[Any]], Any] | None = compiled
        self.eager = eager

    def __call__(self, arguments: list[Any]) -> Any:
        """Run the graph; empties ``arguments``."""
        if self.compiled is not None:
            kept = list(arguments)
            try:
                return self.compiled(arguments)
            except NEFFExecutionError as error:
                logger("compile").warning("The graph %s runs in eager mode from now on: %s", self._name, error)
                plugins.notify(GraphFellBack(self._name, str(error)))
                self.compiled = None
                arguments[:] = kept
        return self.eager(arguments)
