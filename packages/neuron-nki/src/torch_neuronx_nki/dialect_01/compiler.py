"""``neuronxcc.nki.compiler``: hints to the compiler, which the simulator accepts and does not need."""

from collections.abc import Callable
from typing import Any

from torch_neuronx_nki.engines import Buffer
from torch_neuronx_nki.language import loops


class _Memory:
    """``sbuf`` or ``psum`` with the ways of placing tiles in it."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer

    def alloc(self, *_: Any, **__: Any) -> Buffer:
        """Place by a function of the tile's index."""
        return self.buffer

    auto_alloc = mod_alloc = alloc


no_reorder = loops.no_reorder

sbuf = _Memory(Buffer.sbuf)
psum = _Memory(Buffer.psum)


def _hint(name: str) -> Callable[..., Any]:
    def decorate(function: Any = None, **_: Any) -> Any:
        return function if function is not None else lambda decorated: decorated

    decorate.__name__ = name
    decorate.__doc__ = f"Return the function: {name} changes how a kernel is compiled, not what it computes."
    return decorate


enable_stack_allocator = _hint("enable_stack_allocator")
force_auto_alloc = _hint("force_auto_alloc")
skip_middle_end_transformations = _hint("skip_middle_end_transformations")

__all__ = [
    "enable_stack_allocator",
    "force_auto_alloc",
    "no_reorder",
    "psum",
    "sbuf",
    "skip_middle_end_transformations",
]
