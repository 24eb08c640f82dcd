"""Finds the line of a kernel that is being executed."""

import sys
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType

from torch_neuronx_nki.trace import SourceLocation

_PACKAGE = str(Path(__file__).parent)
_KERNELS = str(Path(__file__).parent / "kernels")
_MAX_KNOWN = 10_000

_is_kernel: dict[CodeType, bool] = {}


def kernel_line() -> SourceLocation | None:
    """Return the innermost line on the stack that is not this package's own, or None."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        known = _is_kernel.get(code)
        if known is None:
            if len(_is_kernel) >= _MAX_KNOWN:
                _is_kernel.clear()
            file = code.co_filename
            known = _is_kernel[code] = not file.startswith(_PACKAGE) or file.startswith(_KERNELS)
        if known:
            return _line(code, frame.f_lineno)
        frame = frame.f_back
    return None


@lru_cache(_MAX_KNOWN)
def _line(code: CodeType, number: int) -> SourceLocation:
    return SourceLocation(code.co_filename, number, code.co_qualname)
