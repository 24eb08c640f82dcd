"""Finds the line of a kernel that is being executed."""

import sys
from pathlib import Path
from types import CodeType, FrameType

from torch_neuronx_nki.trace import SourceLocation

_PACKAGE = str(Path(__file__).parent)
_KERNELS = str(Path(__file__).parent / "kernels")
_MAX_KNOWN = 10_000

_known: dict[int, tuple[CodeType, bool]] = {}
"""By the id of code, as the hash of code takes longer than all else here: the code, which keeps its id, and whether it
is a kernel's."""
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
        if known is None:
            if len(_known) >= _MAX_KNOWN:
                _known.clear()
                _lines.clear()
            file = code.co_filename
            known = _known[id(code)] = (code, not file.startswith(_PACKAGE) or file.startswith(_KERNELS))
        if known[1]:
            key = (id(code), frame.f_lineno)
            line = _lines.get(key)
            if line is None:
                line = _lines[key] = SourceLocation(code.co_filename, key[1], code.co_qualname)
            return line
        frame = frame.f_back
    return None
