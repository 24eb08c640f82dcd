"""Private names of torch 2.13.0 that are needed before Dynamo is imported; the others are in the package's `_compat`.

- ``torch._dynamo.backends.registry``: the module that holds the default backend, and the only place that can be watched
  for Dynamo's import.
- ``torch._TorchCompileInductorWrapper``: what every function that was decorated for Inductor calls. Its ``__call__`` is
  replaced when the device is first used: such a function may be given tensors of the device later.
"""

from collections.abc import Callable
from typing import Any

import torch

REGISTRY = "torch._dynamo.backends.registry"
InductorWrapper: Any = torch._TorchCompileInductorWrapper

_redirected = False


def redirect_inductor(claims: Callable[..., bool], compile_instead: Callable[..., Any]) -> None:
    """Let ``compile_instead(config, module, inputs)`` serve the graphs of Inductor that ``claims(module, inputs)``."""
    global _redirected
    if _redirected:
        return
    _redirected = True
    original = InductorWrapper.__call__

    def call(self: Any, model_: Any, inputs_: Any, **arguments: Any) -> Any:
        if claims(model_, inputs_):
            return compile_instead(self.config, model_, inputs_)
        return original(self, model_, inputs_, **arguments)

    InductorWrapper.__call__ = call
