"""Floats of 16 bits, which the steps of a sum or a product leave: these are computed in float32."""

import torch
from torch import Tensor

NARROW = frozenset({torch.float16, torch.bfloat16})
"""Dtypes in which the steps of a computation would overflow or lose digits that its result has."""


def widened(tensor: Tensor) -> Tensor:
    """Return a narrow tensor as float32, and others as they are."""
    return tensor.to(torch.float32) if tensor.dtype in NARROW else tensor
