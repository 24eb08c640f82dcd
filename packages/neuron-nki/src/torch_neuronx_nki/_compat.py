"""Names of torch that are not public. Checked with torch 2.13."""

from types import CodeType

import torch

# What Dynamo does at a function's frames. torch.compiler.disable sets it as well, but imports Dynamo, which takes a
# second that an eager program does not have to pay.
from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy

# torch.library.custom_op returns it, and torch.library has it, but does not export it to type checkers.
from torch._library.custom_ops import CustomOpDef

# A tensor without data may be on any device. torch has no public question for it.
from torch._subclasses.fake_tensor import is_fake

# The mode under which AOT Autograd traces a graph with operators that write to their arguments.
from torch._subclasses.functional_tensor import FunctionalTensorMode

# Running a kernel for its shapes must not leave nodes in the graph that is being traced.
from torch.utils._python_dispatch import _disable_current_modes as without_modes


def hide_from_dynamo(code: CodeType) -> None:
    """Have Dynamo look neither into a function with this ``code`` nor into what it calls.

    A kernel in Python may run in the middle of a function that Dynamo broke: there every new frame is looked into.
    """
    set_code_exec_strategy(code, _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP))


def operators_are_watched() -> bool:
    """Return whether a mode sees every operator: a trace, a counter, a test. torch has no public question for it."""
    return bool(torch._C._len_torch_dispatch_stack())


def is_stand_in(tensor: torch.Tensor) -> bool:
    """Return whether ``tensor`` stands for data that is elsewhere: fake tensors, those of torch.func and of traces."""
    return is_fake(tensor) or bool(
        torch._C._functorch.is_functorch_wrapped_tensor(tensor) or torch._is_functional_tensor(tensor)
    )


__all__ = [
    "CustomOpDef",
    "FunctionalTensorMode",
    "hide_from_dynamo",
    "is_fake",
    "is_stand_in",
    "operators_are_watched",
    "without_modes",
]
