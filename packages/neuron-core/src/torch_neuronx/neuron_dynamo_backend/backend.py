"""The Dynamo backend ``neuron`` where the compile extra is absent: the install line.

The extra registers the backend under the same name. Which of the two entry points Dynamo takes does not matter: this
one hands over to the extra where it is installed.
"""

from collections.abc import Callable
from typing import Any

from torch_neuronx import extras


def neuron_backend(*args: Any, **kwargs: Any) -> Callable[..., Any]:
    """Compile a graph with the compile extra. Raises :class:`MissingExtraError` without it."""
    backend = extras.load("compile", "torch_neuronx_compile.backend", 'torch.compile(backend="neuron")')
    compiled: Callable[..., Any] = backend.neuron(*args, **kwargs)
    return compiled
