"""Finds the line of a kernel that is being executed."""

import sys
from pathlib import Path
from types import FrameType

from torch_neuronx_nki.trace import SourceLocation

_PACKAGE = str(Path(__file__).parent)
_KERNELS = str(Path(__file__).parent / "kernels")


def kernel_line() -> SourceLocation | None:
    """Return the innermost line on the stack that is not this package's own, or None."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_PACKAGE) or file.startswith(_KERNELS):
            return SourceLocation(file, frame.f_lineno, frame.f_code.co_qualname)
        frame = frame.f_back
    return None
