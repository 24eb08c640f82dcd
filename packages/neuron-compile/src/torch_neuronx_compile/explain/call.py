"""Explain one call."""

from collections.abc import Callable
from typing import Any

import torch

from torch_neuronx_compile.explain._compat import is_compiled
from torch_neuronx_compile.explain.recorder import recording
from torch_neuronx_compile.explain.report import Explanation


def explain(function: Callable[..., Any], /, *inputs: Any, **arguments: Any) -> Explanation:
    """Call ``function`` with ``backend="neuron"`` and return what was compiled, what was not, and why.

    ``function`` is a function, a module, or what ``torch.compile`` made of one. So that everything is compiled anew,
    what Dynamo has kept for all functions of this process is forgotten first, as ``torch._dynamo.explain`` does; the
    compilation caches are not. An exception that the call raises is in the explanation and is not raised.
    """
    torch.compiler.reset()
    compiled = function if is_compiled(function) else torch.compile(function, backend="neuron")
    failure: Exception | None = None
    with recording() as recorder:
        try:
            compiled(*inputs, **arguments)
        except Exception as error:  # whatever the user's function or the compilation raises is part of the answer
            failure = error
        return recorder.explanation(_name(function), failure)


def _name(function: Callable[..., Any]) -> str:
    inner = getattr(function, "_orig_mod", function)
    return getattr(inner, "__qualname__", type(inner).__qualname__)
