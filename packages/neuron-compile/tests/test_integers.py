"""Narrow and unsigned integers, and bits, through the compiler."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from .helpers import compiled

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "and": lambda x: x & 6,
    "or": lambda x: x | 1,
    "xor": lambda x: x ^ 3,
    "left shift": lambda x: x << 2,
    "right shift": lambda x: x >> 2,
    "any": lambda x: x.any(),
    "any in rows": lambda x: (x * 0).any(1),
    "all": lambda x: x.all(),
    "all in rows": lambda x: x.all(1, keepdim=True),
    "any of a number": lambda x: x[0, 0].any(0),
    "all of a number": lambda x: (x[0, 0] * 0).all(-1),
    "abs": lambda x: x.abs(),
    "less": lambda x: x < 100,
    "extremes": lambda x: torch.maximum(x, x.flip(0)).amin(),
}


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32], ids=str)
def test_integers(dtype: torch.dtype) -> None:
    x = torch.tensor([[1, 2, 3, 100], [5, 17, 126, 7]], dtype=dtype)
    x[1, 3] = 250 if dtype is torch.uint8 else -3

    def all_of_them(x: Tensor) -> list[Tensor]:
        return [function(x) for function in FUNCTIONS.values()]

    found, expected = compiled(all_of_them)(x.to("neuron")), all_of_them(x)
    assert [one.dtype for one in found] == [one.dtype for one in expected]
    assert [one.tolist() for one in found] == [one.tolist() for one in expected]
