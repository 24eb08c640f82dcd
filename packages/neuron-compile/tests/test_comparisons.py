"""Comparisons of two dtypes: the common one decides, which a scalar tensor's is not."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from .helpers import compiled

BFLOAT16 = torch.tensor([0.3, 0.1, -2, 0.30078125, float("nan")], dtype=torch.bfloat16)
INT32 = torch.tensor([0, 3, -5], dtype=torch.int32)

PAIRS: list[tuple[Tensor, Any]] = [
    (torch.tensor(0.3), BFLOAT16),
    (BFLOAT16, torch.tensor(0.3)),
    (BFLOAT16, torch.tensor([0.3])),
    (BFLOAT16, BFLOAT16.half()),
    (BFLOAT16.half(), torch.tensor(0.1)),
    (INT32, torch.tensor(2**40)),
    (torch.tensor(2**40 + 3), INT32),
    (INT32, torch.tensor(0.5)),
    (INT32 > 0, INT32),
    (INT32 > 0, torch.tensor(True)),
]
NUMBERS: list[tuple[Tensor, Any]] = [(BFLOAT16, 0.3), (BFLOAT16.half(), 0.1), (INT32, 0.5), (INT32, 3.0), (BFLOAT16, 1)]

COMPARISONS = ["eq", "ne", "lt", "le", "gt", "ge"]
LOGIC = ["logical_and", "logical_or", "logical_xor"]


@pytest.mark.parametrize("name", COMPARISONS + LOGIC)
def test_in_the_common_dtype(name: str) -> None:
    op: Callable[..., Tensor] = getattr(torch, name)
    pairs = PAIRS + (NUMBERS if name in COMPARISONS else [])

    def all_of_them(values: list[Any]) -> list[Tensor]:
        return [op(one, other) for one, other in zip(values[::2], values[1::2], strict=True)]

    host = [value for pair in pairs for value in pair]
    device = [value.to("neuron") if isinstance(value, Tensor) else value for value in host]
    for pair, expected, actual in zip(pairs, all_of_them(host), compiled(all_of_them)(device), strict=True):
        assert torch.equal(actual.cpu(), expected), pair


def test_what_is_computed_is_rounded_before_it_is_compared() -> None:
    def call(x: Tensor, number: Tensor) -> tuple[Tensor, Tensor]:
        return x * 1.0 == number * 1.0, x.float() * 2

    expected = call(BFLOAT16, torch.tensor(0.3))[0]
    assert torch.equal(compiled(call)(BFLOAT16.to("neuron"), torch.tensor(0.3, device="neuron"))[0].cpu(), expected)
