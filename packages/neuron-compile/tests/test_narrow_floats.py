"""bfloat16 and float16 through the compiler: constants have their width, and steps of reductions more than that."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from .helpers import check, compiled

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "clamp": lambda x: x.clamp(min=0.5),
    "elu": torch.nn.functional.elu,
    "amin": lambda x: x.amin(0),
    "argmax": lambda x: x.argmax(1),
    "sum": lambda x: x.sum(0),
    "mean": lambda x: x.mean(1),
    "tril": torch.tril,
    "sign": torch.sign,
    "trunc": torch.trunc,
}


LARGE: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda x: x.mean(1),
    "mean of all": lambda x: x.mean(),
    "variance": lambda x: x.var(1),
    "deviation": lambda x: torch.std_mean(x)[0],
    "norm": lambda x: x.norm(dim=1),
    "norm of all": lambda x: torch.linalg.vector_norm(x, 3),
    "norms": lambda x: torch._foreach_norm([x])[0],
    "distance": lambda x: F.pairwise_distance(x, x / 2),
    "direction": lambda x: F.normalize(x, dim=1),
    "loss": lambda x: F.l1_loss(x, x / 2),
    "pooling": lambda x: F.adaptive_avg_pool1d(x, 1),
}


def test_reductions_hold_more_than_their_dtype() -> None:
    """Sums and squares on the way are beyond float16, the results are not."""
    x = 300 + torch.linspace(-3, 3, 2000, dtype=torch.float16).reshape(2, 1000)

    def all_of_them(x: Tensor) -> list[Tensor]:
        return [function(x) for function in LARGE.values()]

    exact = all_of_them(x.double())
    found = compiled(all_of_them)(x.to("neuron"))
    assert {one.dtype for one in found} == {torch.float16}
    torch.testing.assert_close([one.cpu().double() for one in found], exact, rtol=2e-3, atol=1e-3)


SCALED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "a number beyond the range": lambda x, scale: x * 65536.0,
    "a tensor beyond the range": lambda x, scale: x * scale,
    "a divisor beyond the range": lambda x, scale: x / 1e5,
    "a tensor as the divisor": lambda x, scale: x / scale,
    "a number below the range": lambda x, scale: (x * 20000.0) * 1e-8,
    "an integer": lambda x, scale: x * 100000,
    "a number between two": lambda x, scale: x * 0.9,
}


def test_scales_hold_more_than_the_dtype() -> None:
    """As on the CPU: a loss of 0.25 scaled by 65536 is a float16 number, though the scale is not."""
    x, scale = torch.tensor([1e-3, 0.25, 0.9, -0.5], dtype=torch.float16), torch.tensor(65536.0)

    def all_of_them(x: Tensor, scale: Tensor) -> list[Tensor]:
        return [function(x, scale) for function in SCALED.values()]

    found = compiled(all_of_them)(x.to("neuron"), scale.to("neuron"))
    assert {one.dtype for one in found} == {torch.float16}
    torch.testing.assert_close([one.cpu() for one in found], all_of_them(x, scale), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_narrow_floats(name: str, dtype: torch.dtype) -> None:
    x = torch.linspace(-3, 3, 20).reshape(4, 5).to(dtype)
    check(FUNCTIONS[name], x, rtol=1e-2, atol=1e-2)


def test_addbmm_adds_its_products_once() -> None:
    left, right = torch.randn(3, 4, 5, dtype=torch.bfloat16), torch.randn(3, 5, 6, dtype=torch.bfloat16)
    added = torch.randn(4, 6, dtype=torch.bfloat16)
    found = compiled(torch.addbmm)(*(x.to("neuron") for x in (added, left, right)))
    expected = torch.addbmm(*(x.double() for x in (added, left, right)))
    torch.testing.assert_close(found.cpu().double(), expected, rtol=1e-2, atol=5e-2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_decimals_are_rounded_once(dtype: torch.dtype) -> None:
    x = torch.linspace(-3, 3, 1000).to(dtype)

    def function(x: Tensor) -> list[Tensor]:
        return [x.round(decimals=1), x.round(decimals=2), (30 * x).round(decimals=-1)]

    for one, other in zip(compiled(function)(x.to("neuron")), function(x), strict=True):
        torch.testing.assert_close(one.cpu(), other, rtol=0, atol=0)
