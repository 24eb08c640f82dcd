"""What the emulator hands to ATen, at sizes at which it does, equals the CPU's eager results."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from .helpers import check, compiled


def _x(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def _masked(x: Tensor) -> Tensor:
    mask = torch.arange(64, device=x.device) >= torch.arange(64, device=x.device)[:, None]
    mask = mask & (torch.arange(64, device=x.device)[:, None] != 3)
    return F.scaled_dot_product_attention(x, x, x, attn_mask=mask)


CASES: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "product of transposed and cut": (lambda x, y: x.t() @ y[:, 2:34], (_x(48, 40), _x(48, 64))),
    "product with repeated rows": (lambda x, y: x[:, :1].expand(40, 48) @ y, (_x(40, 2), _x(48, 64))),
    "batched product of heads": (
        lambda x, y: x.view(4, 32, 4, 16).transpose(1, 2) @ y.view(4, 32, 4, 16).permute(0, 2, 3, 1),
        (_x(4, 32, 64), _x(4, 32, 64)),
    ),
    "softmax": (lambda x: (x * 3).softmax(-1), (_x(32, 256),)),
    "log_softmax": (lambda x: (x * 3).log_softmax(-1), (_x(32, 256),)),
    "softmax of the first axis": (lambda x: x.softmax(0), (_x(32, 256),)),
    "attention with a row that sees nothing": (_masked, (_x(2, 4, 64, 16),)),
    "layer norm": (lambda x, w, b: F.layer_norm(x * 2, (128,), w, b), (_x(64, 128), _x(128), _x(128))),
    "layer norm of two axes": (lambda x, w: F.layer_norm(x, (16, 32), w), (_x(16, 16, 32), _x(16, 32))),
    "rms norm": (lambda x, w: F.rms_norm(x, (128,), w), (_x(64, 128), _x(128))),
    "batch norm": (lambda x: F.batch_norm(x, None, None, training=True), (_x(8, 8, 12, 12),)),
    "group norm": (lambda x: F.group_norm(x, 4), (_x(8, 8, 12, 12),)),
    "sums and extremes": (lambda x: (x.sum(0), x.exp().mean((0, 2)), x.amax(1), x.amin((1, 2))), (_x(16, 24, 32),)),
    "convolution": (lambda x, w, b: F.conv2d(x, w, b, padding=1), (_x(2, 4, 16, 16), _x(8, 4, 3, 3), _x(8))),
    "strided convolution": (lambda x, w: F.conv2d(x, w, stride=2, padding=1), (_x(2, 4, 16, 16), _x(8, 4, 3, 3))),
    "strided convolution with a rest": (lambda x, w: F.conv2d(x, w, stride=2), (_x(2, 4, 16, 18), _x(8, 4, 3, 3))),
    "dilated convolution": (lambda x, w: F.conv2d(x, w, dilation=2, padding=2), (_x(2, 4, 16, 16), _x(8, 4, 3, 3))),
    "grouped convolution": (lambda x, w: F.conv2d(x, w, padding=1, groups=2), (_x(2, 4, 16, 16), _x(8, 2, 3, 3))),
    "convolution over time": (lambda x, w: F.conv1d(x, w, padding=2), (_x(4, 8, 64), _x(16, 8, 5))),
    "pointwise convolution": (lambda x, w: F.conv2d(x, w, stride=2), (_x(2, 16, 16, 16), _x(16, 16, 1, 1))),
    "largest of windows and their places": (
        lambda x: F.max_pool2d(x.round(), 3, 2, 1, return_indices=True)[0],
        (_x(2, 8, 20, 21),),
    ),
    "largest of windows in space": (lambda x: F.max_pool3d(x, 3, 2, 1), (_x(2, 3, 8, 12, 12),)),
    "convolutions between what is row-major": (
        lambda x, w, v: F.conv2d(F.max_pool2d(F.conv2d(x, w, padding=1).relu(), 2), v).mean((2, 3)),
        (_x(2, 8, 16, 16), _x(8, 8, 3, 3), _x(16, 8, 3, 3)),
    ),
    "convolution of small planes": (lambda x, w: F.conv2d(x, w, padding=1), (_x(4, 16, 4, 4), _x(16, 16, 3, 3))),
    "padded by hand": (lambda x, w: F.conv2d(F.pad(x, (1, 2, 0, 1)), w), (_x(2, 4, 16, 16), _x(8, 4, 3, 3))),
}
FORWARD: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "transposed convolution": (
        lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1),
        (_x(2, 8, 12, 12), _x(8, 4, 3, 3)),
    ),
    "convolution over space": (lambda x, w: F.conv3d(x, w, padding=1), (_x(2, 3, 6, 8, 8), _x(4, 3, 3, 3, 3))),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name: str) -> None:
    function, inputs = CASES[name]
    check(function, *inputs, grad=True, rtol=2e-5, atol=2e-4)


@pytest.mark.parametrize("name", FORWARD)
def test_values(name: str) -> None:
    function, inputs = FORWARD[name]
    check(function, *inputs, rtol=2e-5, atol=2e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_narrow_product_is_the_eager_one_to_the_bit(dtype: torch.dtype) -> None:
    x, y = _x(64, 128).to(dtype), _x(128, 96).to(dtype)
    result = compiled(lambda x, y: x @ y)(x.to("neuron"), y.to("neuron"))
    assert torch.equal(result.cpu(), x @ y)


def test_a_bfloat16_block_rounds_as_eager_mode_does() -> None:
    x, w = _x(64, 128).bfloat16(), _x(96, 128).bfloat16() * 0.1

    def block(x: Tensor, w: Tensor) -> Tensor:
        return F.gelu(F.layer_norm(x, (128,)) @ w.t()).softmax(-1)

    result = compiled(block)(x.to("neuron"), w.to("neuron")).cpu()
    expected = block(x, w)
    difference = (result.float() - expected.float()).abs()
    assert (difference <= expected.float().abs() * 2**-6).float().mean() > 0.99
    assert difference.max() <= expected.float().max() * 2**-5


def test_the_largest_of_a_window_may_be_nan_or_minus_infinity() -> None:
    x = _x(1, 2, 12, 12)
    x[0, 0, 3, 4], x[0, 1] = float("nan"), float("-inf")
    result = compiled(lambda x: F.max_pool2d(x, 3, 2, 1))(x.to("neuron")).cpu()
    torch.testing.assert_close(result, F.max_pool2d(x, 3, 2, 1), equal_nan=True, rtol=0, atol=0)


def test_of_equals_the_first_place_is_taken_and_of_nans_the_last() -> None:
    x = _x(1, 16, 20, 20).round()
    x[0, 0, 3:5, 4], x[0, 1] = float("nan"), float("-inf")

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        values, places = F.max_pool2d(x, 3, 2, 1, return_indices=True)
        return values, places

    for result, expected in zip(compiled(function)(x.to("neuron")), function(x), strict=True):
        assert result.dtype == expected.dtype
        torch.testing.assert_close(result.cpu(), expected, equal_nan=True, rtol=0, atol=0)


def test_an_infinity_and_a_nan_stay_what_they_are() -> None:
    x = _x(32, 256)
    x[0, 0], x[1, 1], x[2] = float("inf"), float("nan"), float("-inf")

    def function(x: Tensor) -> list[Tensor]:
        return [x.softmax(-1), x.log_softmax(-1), x.amax(1), x.sum(1), x @ x.t()]

    results = compiled(function)(x.to("neuron"))
    for result, expected in zip(results, function(x), strict=True):
        torch.testing.assert_close(result.cpu(), expected, equal_nan=True, rtol=2e-5, atol=2e-4)


@pytest.mark.parametrize("groups", [1, 2])
def test_windows_that_xla_takes_for_groups(groups: int) -> None:
    """XLA died where a window is longer than the image along one axis, and as long as it is spread along another."""
    torch.manual_seed(0)

    def convolve(x: Tensor, w: Tensor) -> Tensor:
        return F.conv2d(x * 1.5, w, stride=2, padding=1, groups=groups)

    def spread(x: Tensor, w: Tensor) -> Tensor:
        return F.conv_transpose2d(x * 1.5, w, stride=(1, 2), padding=(0, 1), dilation=(2, 1))

    check(convolve, torch.randn(2, 2, 1, 8), torch.randn(2, 2 // groups, 2, 2), grad=True)
    check(spread, torch.randn(1, 4, 2, 8), torch.randn(4, 1, 3, 2), grad=True)
