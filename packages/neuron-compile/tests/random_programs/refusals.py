"""Tells what PyTorch refuses to compile on every device from what only this one refuses."""

import re
import traceback

import torch

from .compare import backward
from .program import Program, make_inputs

_DEVICE = re.compile(r"device='\w+(:\d+)?', |\b(neuron|cpu)(:\d+)?\b")
"""How errors name devices: a fake tensor that is not on the CPU says so."""


def pytorch_refuses(program: Program, error: Exception) -> bool:
    """Whether ``error``, raised by ``program`` compiled on the device, is raised on the CPU too.

    There the program is compiled with ``aot_eager``, which captures and differentiates a graph and generates no code.
    It must raise the same class with the same words at the same line of PyTorch; anything else is the device's own.
    """
    ours = _told(error)
    torch._dynamo.reset()
    try:
        backward(torch.compile(program.function(), backend="aot_eager")(*make_inputs(program.inputs)))
    except Exception as other:  # whatever it is: it is compared
        return _told(other) == ours
    return False


def _told(error: BaseException) -> tuple[type[BaseException], str, list[tuple[str, int | None]]]:
    """Return an error's class, words and place, without what Dynamo wraps around it and the device's name."""
    while isinstance(error, torch._dynamo.exc.BackendCompilerFailed):
        error = error.inner_exception
    place = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)[-1:]]
    return type(error), _DEVICE.sub("", str(error)), place
