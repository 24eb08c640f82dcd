"""bfloat16 and float16 through the compiler: constants in the program have their width."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from .helpers import check

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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_narrow_floats(name: str, dtype: torch.dtype) -> None:
    x = torch.linspace(-3, 3, 20).reshape(4, 5).to(dtype)
    check(FUNCTIONS[name], x, rtol=1e-2, atol=1e-2)
