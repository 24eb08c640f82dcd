"""The door to the compile extra's explanations.

The module is not called ``explain``: importing it would put the module where the function ``torch_neuronx.explain`` is.
"""

from collections.abc import Callable
from typing import Any

from torch_neuronx import extras


def explain(function: Callable[..., Any], /, *inputs: Any, **arguments: Any) -> Any:
    """Call ``function`` with ``backend="neuron"`` and return what was compiled, what was not, and why.

    The answer is a ``torch_neuronx_compile.explain.report.Explanation``: ``text()``, ``json()``, ``html(path)``. What
    Dynamo has kept for functions of this process is forgotten first, so that everything is compiled anew. An exception
    that the call raises is part of the explanation. Raises :class:`MissingExtraError` without the compile extra.
    """
    call = extras.load("compile", "torch_neuronx_compile.explain.call", "torch_neuronx.explain")
    return call.explain(function, *inputs, **arguments)
