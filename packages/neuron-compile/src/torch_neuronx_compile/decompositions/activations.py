"""Activations that draw random numbers."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

aten = torch.ops.aten


def rrelu_with_noise(
    self: Tensor,
    noise: Tensor,
    lower: float = 0.125,
    upper: float = 1 / 3,
    training: bool = False,
    generator: Any = None,
) -> tuple[Tensor, Tensor]:
    """Decompose: a random slope for every negative element in training, else their mean."""
    if not training:
        return torch.nn.functional.leaky_relu(self, (lower + upper) / 2), noise.clone()
    slope = torch.rand_like(self, dtype=torch.float32) * (upper - lower) + lower
    slope = torch.where(self <= 0, slope, 1.0).to(self.dtype)
    return self * slope, slope


DECOMPOSITIONS: dict[OpOverload, Callable[..., Any]] = {
    aten.rrelu_with_noise_functional.default: rrelu_with_noise,
}
