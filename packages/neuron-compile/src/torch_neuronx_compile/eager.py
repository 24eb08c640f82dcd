"""Graphs that run operator by operator, where falling back is allowed."""

from collections.abc import Callable
from typing import Any

from torch import fx

from torch_neuronx.errors import NEFFExecutionError
from torch_neuronx.logs import logger


class EagerGraph:
    """Runs an AOT graph on the device with eager operators."""

    def __init__(self, module: fx.GraphModule) -> None:
        self._boxed_call = True
        self._module = module

    def __call__(self, arguments: list[Any]) -> Any:
        """Run the graph; empties ``arguments``."""
        given = list(arguments)
        arguments.clear()
        return self._module(*given)


class GraphWithFallback:
    """Runs a compiled graph, and the graph it was made from after a run has failed."""

    def __init__(self, name: str, compiled: Callable[[list[Any]], Any], eager: EagerGraph) -> None:
        self._boxed_call = True
        self._name = name
        self._compiled: Callable[[list[Any]], Any] | None = compiled
        self._eager = eager

    def __call__(self, arguments: list[Any]) -> Any:
        """Run the graph; empties ``arguments``."""
        if self._compiled is not None:
            kept = list(arguments)
            try:
                return self._compiled(arguments)
            except NEFFExecutionError as error:
                logger("compile").warning("The graph %s runs in eager mode from now on: %s", self._name, error)
                self._compiled = None
                arguments[:] = kept
        return self._eager(arguments)
