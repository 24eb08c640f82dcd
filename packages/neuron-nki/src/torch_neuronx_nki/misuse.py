"""Says in the package's words, with the kernel's line, what Python says where an argument has the wrong form.

Functions of the language and instructions read their arguments as they need them, and Python fails somewhere inside of
them for what they cannot read. To check each before would cost every instruction; so the error is looked at when the
kernel has ended. One that a kernel's own lines raise, or a call with the wrong signature, stays as it is.
"""

import inspect
import sysconfig
import traceback
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import torch
import torch.distributed

from torch_neuronx.errors import NeuronError
from torch_neuronx_nki import source
from torch_neuronx_nki.errors import NkiValidationError
from torch_neuronx_nki.tensors import NkiTensor

_PYTHONS = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RuntimeError, MemoryError, OSError)
_NOT_ABOUT_ARGUMENTS = (NeuronError, RecursionError, torch.OutOfMemoryError, torch.distributed.DistError)
_MAX_TEXT = 60
_INSTALLED = sysconfig.get_path("purelib")
_LIBRARIES = (str(Path(torch.__file__).parent), str(Path(np.__file__).parent), "<frozen")
_STANDARD = sysconfig.get_path("stdlib")


def explained(error: BaseException) -> NkiValidationError | None:
    """Return what to raise in place of ``error``, which has left a kernel; None: nothing else."""
    if not isinstance(error, _PYTHONS) or isinstance(error, _NOT_ABOUT_ARGUMENTS):
        return None
    frames = list(traceback.walk_tb(error.__traceback__))
    ours = [not source.is_kernel(frame.f_code) for frame, _ in frames]
    entered = max((at for at, (frame, _) in enumerate(frames) if source.is_callback(frame.f_code)), default=-1) + 1
    if entered == 0 or entered == len(frames) or ours[entered] or True not in ours[entered:]:
        return None  # it is of no kernel's making, or of its own lines
    first = len(ours) - 1 - ours[::-1].index(True)
    if not all(_is_library(frame.f_code) for frame, _ in frames[first + 1 :]):
        return None  # a function that the kernel, or an observer, has given us
    while ours[first - 1]:
        first -= 1
    called, (kernel, number) = frames[first][0], frames[first - 1]
    where = source.line_of(kernel.f_code, number)
    name, given = _called(called)
    return NkiValidationError(
        f"{name} cannot take {given or 'no arguments'}: {type(error).__name__}: {_cut(str(error), 200)} ({where}). "
        "Compare the arguments with its signature. [argument-form]",
        rule="argument-form",
        limit="arguments of the types that it documents",
        actual=given,
        source=where,
    )


def _is_library(code: CodeType) -> bool:
    file = code.co_filename
    return file.startswith(_LIBRARIES) or (file.startswith(_STANDARD) and not file.startswith(_INSTALLED))


def _called(frame: FrameType) -> tuple[str, str]:
    """Return the name of a function that was called, and its arguments."""
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    names = list(code.co_varnames[:count])
    own = names[0] if names and names[0] in ("self", "cls") else None
    shown = [f"{name}={_text(frame.f_locals.get(name))}" for name in names if name != own]
    if code.co_flags & inspect.CO_VARARGS:
        shown = [*map(_text, frame.f_locals.get(code.co_varnames[count], ())), *shown]
    name = repr(frame.f_locals["self"]) if code.co_qualname == "Operator.__call__" else code.co_qualname
    return name, ", ".join(shown)


def _text(value: Any) -> str:
    if isinstance(value, NkiTensor):
        return f"<{value.dtype} {list(value.shape)} in {value.buffer.name}>"
    if isinstance(value, torch.Tensor | np.ndarray):
        return f"<{type(value).__name__} {list(value.shape)}>"
    if isinstance(value, tuple | list):
        texts = ", ".join(map(_text, value[:8]))
        return _cut(f"[{texts}]" if isinstance(value, list) else f"({texts})", _MAX_TEXT)
    try:
        return _cut(repr(value), _MAX_TEXT)
    except Exception:  # the object is the kernel's
        return f"<{type(value).__name__}>"


def _cut(text: str, most: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 3] + "..."
