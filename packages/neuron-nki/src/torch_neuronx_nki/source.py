"""Finds the line of a kernel that is being executed."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeVar

from torch_neuronx_nki.trace import SourceLocation

F = TypeVar("F", bound=Callable[..., Any])

_PACKAGE = str(Path(__file__).parent)
_KERNELS = str(Path(__file__).parent / "kernels")
_MAX_KNOWN = 10_000

_known: dict[int, tuple[CodeType, bool]] = {}
"""By the id of code, as the hash of code takes longer than all else here: the code, which keeps its id, and whether it
is a kernel's."""
_callbacks: set[int] = set()
"""The ids of code of functions that are there as long as their modules."""
_lines: dict[tuple[int, int], SourceLocation] = {}
"""By the id of code that ``_known`` keeps, and the line."""


def kernel_line(up: int = 1) -> SourceLocation | None:
    """Return the innermost line on the stack that is not this package's own, or None.

    It is looked for from the caller on that is ``up`` calls up.
    """
    frame: FrameType | None = sys._getframe(up)
    while frame is not None:
        code = frame.f_code
        known = _known.get(id(code))
        if known[1] if known is not None else is_kernel(code):
            return line_of(code, frame.f_lineno)
        frame = frame.f_back
    return None


def is_kernel(code: CodeType) -> bool:
    """Whether code is not this package's own, or that of its kernels."""
    known = _known.get(id(code))
    if known is None:
        if len(_known) >= _MAX_KNOWN:
            _known.clear()
            _lines.clear()
        file = code.co_filename
        known = _known[id(code)] = (code, not file.startswith(_PACKAGE) or file.startswith(_KERNELS))
    return known[1]


def calls_back(function: F) -> F:
    """Mark a function of this package that runs kernels, or what others do: what is raised in there is theirs."""
    _callbacks.add(id(function.__code__))
    return function


def is_callback(code: CodeType) -> bool:
    """Whether it is the code of a function that :func:`calls_back` has marked."""
    return id(code) in _callbacks


def line_of(code: CodeType, number: int) -> SourceLocation:
    """Return a line of code that :func:`is_kernel` has been asked about."""
    key = (id(code), number)
    line = _lines.get(key)
    if line is None:
        line = _lines[key] = SourceLocation(code.co_filename, number, code.co_qualname)
    return line
