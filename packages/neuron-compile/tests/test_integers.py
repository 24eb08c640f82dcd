"""Narrow and unsigned integers, and bits, through the compiler."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from .helpers import compiled

COMPARISONS = (torch.gt, torch.ge, torch.lt, torch.le, torch.eq, torch.ne)

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "and": lambda x: x & 6,
    "or": lambda x: x | 1,
    "xor": lambda x: x ^ 3,
    "left shift": lambda x: x << 2,
    "left shift by a tensor": lambda x: x << (x & 3),
    "right shift by a tensor": lambda x: x >> (x & 3),
    "left shift of other shapes": lambda x: x[:, None] << (x[:, :1] & 3),
    "right shift of other shapes": lambda x: x[:1] >> (x & 3),
    "shifts of other dtypes": lambda x: (x << (x & 3).long()) + (x[0, 0] >> (x & 3).short()),
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


def test_truth_values() -> None:
    """They are ordered as 0 and 1, whatever they are compared with."""
    x, y = torch.tensor([False, True, False, True]), torch.tensor([False, False, True, True])

    def function(x: Tensor, y: Tensor) -> list[Tensor]:
        numbers = [compare(x, number) for compare in COMPARISONS for number in (0, 1, True, -2, 2, 0.5)]
        return [*(compare(x, y) for compare in COMPARISONS), *numbers, x + y, x + True, torch.add(x, y, alpha=False)]

    found, expected = compiled(function)(x.to("neuron"), y.to("neuron")), function(x, y)
    assert [one.tolist() for one in found] == [one.tolist() for one in expected]
    assert {one.dtype for one in found} == {torch.bool}


def test_integers_are_divided_as_they_are_in_eager_mode() -> None:
    x = torch.tensor([5, -7, 9, -1])

    def function(x: Tensor) -> list[Tensor]:
        return [torch.fmod(x, 3), torch.fmod(x, -2.5), torch.fmod(x.float(), 2), torch.reciprocal(x), 1 / x]

    for one, other in zip(compiled(function)(x.to("neuron")), function(x), strict=True):
        torch.testing.assert_close(one.cpu(), other)


def test_products_of_integers_take_their_factors_as_integers() -> None:
    matrix = torch.arange(1, 5).reshape(2, 2)

    def function(x: Tensor) -> list[Tensor]:
        row, batch = x[0], x[None]
        small = x.to(torch.int32)
        return [
            torch.addmm(x, x, x, beta=0.5),
            torch.addmm(x, x, x, alpha=1.7),
            torch.addmv(row, x, row, beta=1.5, alpha=2.5),
            torch.baddbmm(batch, batch, batch, beta=0.5),
            torch.addbmm(x, batch.expand(3, 2, 2), batch.expand(3, 2, 2), beta=2, alpha=-1.5),
            torch.addcmul(x, x, x, value=1.7),
            torch.nn.functional.bilinear(small, small, small[None]),
        ]

    _same(function, matrix)


def test_a_truth_value_is_a_number_among_numbers() -> None:
    def function(x: Tensor) -> list[Tensor]:
        return [
            x.clamp(-2, 2.5),
            x.clamp(max=3.5),
            x.clamp(-2, 2),
            x // True,
            x % True,
            torch.floor_divide(x.int(), True),
            x.float() // True,
            x**True,
            x + True,
            True / x,
        ]

    _same(function, torch.tensor([5, -7, 9, -1]))


def test_extremes_and_powers_of_truth_values() -> None:
    def function(x: Tensor) -> list[Tensor]:
        return [
            x.amax(1), x.amin(1), x.amax(), x.amin((0, 1), keepdim=True), *x.aminmax(dim=1), *x.max(1), *x.min(0),
            x.max(), x.min(), (x & False).max(), (x | True).min(), x[0, 0].amax(), x**True, x**False,
            x.clamp(-2, 2.5), x.clamp(min=1), x.clamp(max=0.5),
        ]  # fmt: skip

    _same(function, torch.tensor([[0, 0, 0], [1, 0, 1], [1, 1, 1]]).bool())


def _same(function: Callable[[Tensor], list[Tensor]], x: Tensor) -> None:
    found, expected = compiled(function)(x.to("neuron")), function(x)
    assert [one.dtype for one in found] == [one.dtype for one in expected]
    assert [one.tolist() for one in found] == [one.tolist() for one in expected]
