"""NaN compares in compiled graphs as it does on the CPU, also with itself."""

import torch
from torch import Tensor

from .helpers import check


def compared(x: Tensor) -> tuple[Tensor, ...]:
    again = x.clone()
    return (
        x == x, x != x, x >= x, x < x, x == again, x != again,
        torch.isnan(x), torch.isfinite(x), torch.isinf(x), torch.maximum(x, again), x * 0, x - again,
    )  # fmt: skip


def test_comparisons() -> None:
    check(compared, torch.tensor([1.0, float("nan"), float("inf"), -float("inf"), 0.0]))
