"""Complex tensors in compiled graphs: pairs of real tensors in the program, complex ones outside."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from .helpers import check_all, compiled


def _x(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


REAL: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "spectrum and back": (lambda x: torch.fft.irfft(torch.fft.rfft(x) * 2, n=9), (_x(3, 9),)),
    "two axes, orthonormal": (lambda x: torch.fft.fft2(x, norm="ortho").abs(), (_x(2, 4, 6),)),
    "a length of two factors": (lambda x: torch.view_as_real(torch.fft.fft(x)), (_x(2, 150),)),
    "one axis only": (lambda x: torch.view_as_real(torch.fft.fft(x)), (_x(31),)),
    "arithmetic": (
        lambda x, y: torch.view_as_real(torch.complex(x, y) * (x + 2j) / torch.complex(y + 3, x)),
        (_x(5), _x(5)),
    ),
    "size and angle": (lambda x, y: torch.angle(torch.polar(x.abs() + 1, y)), (_x(5), _x(5))),
    "exponential": (lambda x, y: torch.complex(x, y).exp().real, (_x(5), _x(5))),
    "matrix product": (
        lambda x, y: torch.view_as_real(torch.complex(x, y) @ torch.complex(y, x)),
        (_x(4, 4), _x(4, 4)),
    ),
    "moved elements": (
        lambda x: torch.view_as_real(torch.cat([torch.fft.fft(x)[1:], x.cfloat()]).flip(0)),
        (_x(4, 4),),
    ),
}


def test_values_and_gradients() -> None:
    check_all(REAL, grad=True, atol=3e-5)


@pytest.mark.filterwarnings("ignore::torch_neuronx.errors.Float64Warning")
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_inputs_and_outputs(dtype: torch.dtype) -> None:
    x = torch.complex(_x(3, 4), _x(3, 4)).to(dtype)
    result = compiled(lambda x: (x.conj() * x.sum(), x.t()))(x.to("neuron"))
    for actual, expected in zip(result, (x.conj() * x.sum(), x.t()), strict=True):
        assert actual.dtype == dtype
        torch.testing.assert_close(actual.cpu().resolve_conj(), expected, rtol=1e-5, atol=1e-5)
