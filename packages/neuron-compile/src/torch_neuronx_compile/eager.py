"""A graph that runs operator by operator, where falling back is allowed."""

from typing import Any

from torch import fx


class EagerGraph:
    """Interprets an AOT graph on the device with eager operators."""

    def __init__(self, module: fx.GraphModule) -> None:
        self._boxed_call = True
        self._module = module

    def __call__(self, arguments: list[Any]) -> Any:
        """Run the graph; empties ``arguments``."""
        given = list(arguments)
        arguments.clear()
        return self._module(*given)
