"""What compiled graphs compute of constant tensors: compilers fold it, and some fold it wrong."""

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from torch_neuronx_compile.lowering.lower import CONSTANTS
from torch_neuronx_compile.worker.constants import EXPANSIONS

from .helpers import compiled

COMPARISONS: dict[str, Callable[..., Tensor]] = {
    name: getattr(torch, name) for name in ("gt", "ge", "lt", "le", "eq", "ne")
}
ARITHMETIC: dict[str, Callable[..., Tensor]] = {
    name: getattr(torch, name) for name in ("add", "sub", "mul", "maximum", "minimum", "fmod", "remainder")
}
NUMBERS: dict[torch.dtype, list[float]] = {
    torch.float32: [0.0, 1.0, -2.5],
    torch.bfloat16: [0.0, 1.0, -2.5],
    torch.int64: [1, -3, 2**40],
    torch.int32: [1, -3],
    torch.bool: [False, True],
}


def check(function: Callable[[torch.device], list[Tensor]]) -> None:
    found, expected = compiled(lambda x: function(x.device))(torch.ones(1, device="neuron")), function("cpu")
    for number, (one, other) in enumerate(zip(found, expected, strict=True)):
        assert one.dtype is other.dtype, number
        torch.testing.assert_close(one.cpu(), other, equal_nan=True, msg=f"result {number}")


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_two_constants(dtype: torch.dtype) -> None:
    operators = COMPARISONS if dtype is torch.bool else COMPARISONS | ARITHMETIC

    def function(device: torch.device) -> list[Tensor]:
        pairs = itertools.product(operators.values(), NUMBERS[dtype], NUMBERS[dtype])
        tensors = [
            operator(torch.full((2,), a, dtype=dtype, device=device), torch.full((2,), b, dtype=dtype, device=device))
            for operator, a, b in pairs
        ]
        return [*tensors, *(torch.where(one > 0, one, tensors[0]) for one in tensors if one.dtype is dtype)]

    check(function)


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_a_constant_and_a_number(dtype: torch.dtype) -> None:
    check(
        lambda device: [
            operator(torch.full((2,), a, dtype=dtype, device=device), b)
            for operator, a, b in itertools.product(COMPARISONS.values(), NUMBERS[dtype], (0, 1, -2, 0.5))
        ]
    )


def test_the_worker_makes_what_is_left_to_it() -> None:
    assert set(EXPANSIONS) == CONSTANTS


def test_makers_of_constants() -> None:
    def function(device: torch.device) -> list[Tensor]:
        x = torch.full((2, 3), -1.5, device=device)
        return [
            x,
            torch.zeros(2, dtype=torch.int32, device=device),
            torch.ones((), device=device),
            torch.zeros_like(x, dtype=torch.bool),
            torch.ones_like(x, dtype=torch.bfloat16),
            torch.full_like(x, True),
            torch.full((2,), 7, dtype=torch.uint8, device=device),
            torch.full((2,), float("inf"), device=device),
            torch.scalar_tensor(3, dtype=torch.int64, device=device),
            x.new_full((2,), 2, dtype=torch.float16),
        ]

    check(function)


def test_a_pseudoinverse_leaves_out_small_singular_values() -> None:
    """Its tolerance is chosen by a comparison of constants."""
    column, row = torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[1.0, -2.0, 0.5]])
    matrix = column @ row
    found = compiled(torch.linalg.pinv)(matrix.to("neuron")).cpu()
    torch.testing.assert_close(found, torch.linalg.pinv(matrix), rtol=1e-4, atol=1e-5)
