"""A kernel offered in place of an ATen operator."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class KernelOffer:
    """A kernel that can stand in for an operator when the arguments suit it."""

    name: str
    """Name of the kernel, for logs and for ``torch-neuronx plugins``."""
    op: str
    """Qualified name of the operator: ``aten::scaled_dot_product_attention``."""
    kernel: Callable[..., Any]
    """Takes the operator's arguments and returns its results."""
    predicate: Callable[..., bool]
    """Takes the operator's arguments, possibly fake tensors, and says whether the kernel can serve them."""
    priority: int = 0
    """The highest offer whose predicate is true wins; equal priorities: the first registered."""
