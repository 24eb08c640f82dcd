"""``nki.typing``: annotations of kernels. They say something to people and are not checked."""

from typing import Any


class _TensorAnnotation:
    """``nt.tensor`` or ``nt.tensor[shape]``."""

    def __init__(self, name: str, shape: Any = None) -> None:
        self.name = name
        self.shape = shape

    def __getitem__(self, shape: Any) -> "_TensorAnnotation":
        return _TensorAnnotation(self.name, shape)

    def __repr__(self) -> str:
        return f"nt.{self.name}" if self.shape is None else f"nt.{self.name}[{self.shape}]"

    def __or__(self, other: Any) -> Any:
        return self

    __ror__ = __or__


tensor = _TensorAnnotation("tensor")
"""A tensor."""
mutable_tensor = _TensorAnnotation("mutable_tensor")
"""A tensor that the kernel writes to."""

__all__ = ["mutable_tensor", "tensor"]
