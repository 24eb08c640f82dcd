"""Every private name of torch that the explanation uses, checked against torch 2.13.0.

- ``TRACE``: the logger that carries Dynamo's structured trace, for which torch's own tools listen as well. It alone
  says why a frame was compiled again and where a graph broke, without a setting of the user's.
- ``CompileContext``: which frame of Dynamo's a graph belongs to.
- ``NNModuleToString``: a graph as the source of a module; the minifier's scripts are made with it.
- ``unset_fake_temporarily``: graphs are captured under a fake mode, and their constants are real tensors.
- ``original_callable``: how a compiled function shows that it is one.
"""

import logging
from collections.abc import Callable
from typing import Any

from torch._dynamo.debug_utils import NNModuleToString
from torch._guards import CompileContext
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx import GraphModule

__all__ = ["TRACE", "frame_id", "is_compiled", "module_source"]

TRACE = logging.getLogger("torch.__trace")


def frame_id() -> str:
    """Return the name of the frame whose compilation is running, such as ``0/1``, or an empty text."""
    identity = CompileContext.current_compile_id()
    return "" if identity is None else str(identity)


def module_source(module: GraphModule) -> str:
    """Return the source of a class ``Repro`` that computes what ``module`` does."""
    with unset_fake_temporarily():
        return str(NNModuleToString.convert(module))


def is_compiled(function: Callable[..., Any]) -> bool:
    """Return whether ``torch.compile`` made ``function``."""
    return hasattr(function, "_torchdynamo_orig_callable") or hasattr(function, "_orig_mod")
