"""Random numbers of other distributions, from uniform and normal ones. Sources: inversion of distribution functions."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

aten = torch.ops.aten


def _open_uniform(self: Tensor) -> Tensor:
    """Draw from (0, 1]: the logarithm of every number is finite."""
    return 1.0 - torch.rand_like(self, dtype=torch.float32)


def exponential(self: Tensor, lambd: float = 1, *, generator: Any = None) -> Tensor:
    """Draw from the exponential distribution."""
    return (-torch.log(_open_uniform(self)) / lambd).to(self.dtype)


def geometric(self: Tensor, p: float, *, generator: Any = None) -> Tensor:
    """Draw the number of trials up to the first success."""
    trials = torch.ceil(torch.log(_open_uniform(self)) / math.log1p(-p)) if p < 1 else torch.ones_like(self)
    return torch.clamp(trials, min=1).to(self.dtype)


def cauchy(self: Tensor, median: float = 0, sigma: float = 1, *, generator: Any = None) -> Tensor:
    """Draw from the Cauchy distribution."""
    return (median + sigma * torch.tan(math.pi * (_open_uniform(self) - 0.5))).to(self.dtype)


def log_normal(self: Tensor, mean: float = 1, std: float = 2, *, generator: Any = None) -> Tensor:
    """Draw numbers whose logarithm is normal."""
    return torch.exp(mean + std * torch.randn_like(self))


def normal(mean: Tensor | float, std: Tensor | float = 1.0, *, generator: Any = None) -> Tensor:
    """Draw with a mean and a deviation for each element."""
    shape = (mean + std).shape if isinstance(mean + std, Tensor) else ()  # type: ignore[union-attr]
    like = mean if isinstance(mean, Tensor) else std
    assert isinstance(like, Tensor)
    return torch.randn(shape, dtype=like.dtype, device=like.device) * std + mean


def normal_of_size(mean: float, std: float, size: list[int], *, generator: Any = None, **options: Any) -> Tensor:
    """Draw with one mean and one deviation."""
    options.pop("layout", None)
    options.pop("pin_memory", None)
    return torch.randn(size, **options) * std + mean


def multinomial(self: Tensor, num_samples: int, replacement: bool = False, *, generator: Any = None) -> Tensor:
    """Draw by exponential races (Efraimidis and Spirakis, 2006): the greatest ratios of weight to exponential win."""
    rows = self.to(torch.float32).unsqueeze(-2)
    if replacement:
        rows = rows.expand([*self.shape[:-1], num_samples, self.shape[-1]])
    ratio = rows / (-torch.log(_open_uniform(rows))).clamp(min=torch.finfo(torch.float32).tiny)
    if replacement or num_samples == 1:
        return ratio.argmax(-1)
    return ratio.squeeze(-2).topk(num_samples)[1]


DECOMPOSITIONS: dict[OpOverload, Callable[..., Any]] = {
    aten.exponential.default: exponential,
    aten.geometric.default: geometric,
    aten.cauchy.default: cauchy,
    aten.log_normal.default: log_normal,
    aten.normal.Tensor_Tensor: normal,
    aten.normal.Tensor_float: normal,
    aten.normal.float_Tensor: normal,
    aten.normal.float_float: normal_of_size,
    aten.multinomial.default: multinomial,
}
