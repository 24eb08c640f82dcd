"""Poolings, convolutions and resizing equal the CPU's, gradients included, in every form that has its own path."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from .helpers import check, check_all, first_name, groups


def _x(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


GRID = torch.rand(1, 3, 4, 2, generator=torch.Generator().manual_seed(0)) * 2.4 - 1.2
CASES: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "max, padded, dilated, rounded up": (
        lambda x: F.max_pool2d(x, (3, 2), stride=2, padding=1, dilation=(1, 2), ceil_mode=True),
        (_x(2, 3, 8, 9),),
    ),
    "max of three dimensions": (lambda x: F.max_pool3d(x, 2), (_x(1, 2, 4, 5, 4),)),
    "average without the padding, rounded up": (
        lambda x: F.avg_pool2d(x, 3, stride=2, padding=1, ceil_mode=True, count_include_pad=False),
        (_x(2, 3, 8, 9),),
    ),
    "average of overlapping windows": (lambda x: F.avg_pool1d(x, 4, stride=1, padding=2), (_x(2, 3, 9),)),
    "adaptive average": (lambda x: F.adaptive_avg_pool2d(x, (3, 10)), (_x(2, 3, 7, 5),)),
    "adaptive maximum": (lambda x: F.adaptive_max_pool2d(x, (3, 4)), (_x(2, 3, 7, 5),)),
    "unpooling": (
        lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), kernel_size=2),
        (_x(1, 2, 4, 6),),
    ),
    "convolution with stride, dilation and groups": (
        lambda x, w, b: F.conv2d(x, w, b, stride=2, padding=(1, 2), dilation=(2, 1), groups=2),
        (_x(2, 4, 9, 8), _x(6, 2, 3, 3), _x(6)),
    ),
    "transposed convolution with groups": (
        lambda x, w: F.conv_transpose2d(x, w, stride=3, padding=1, output_padding=2, dilation=2, groups=2),
        (_x(2, 4, 3, 4), _x(4, 3, 3, 2)),
    ),
    "convolution of one dimension": (lambda x, w: F.conv1d(x, w, padding=4), (_x(2, 3, 8), _x(4, 3, 3))),
    "convolution of three dimensions": (
        lambda x, w: F.conv3d(x, w, stride=(1, 2, 1)),
        (_x(1, 2, 4, 5, 4), _x(2, 2, 2, 2, 2)),
    ),
    "antialiased": (lambda x: F.interpolate(x, (3, 4), mode="bilinear", antialias=True), (_x(1, 2, 7, 9),)),
    "grid, reflected": (
        lambda x, g: F.grid_sample(x, g, padding_mode="reflection", align_corners=False),
        (_x(1, 2, 5, 6), GRID),
    ),
}


@pytest.mark.parametrize("cases", groups(CASES, 7), ids=first_name)
def test_values_and_gradients(cases: dict[str, Any]) -> None:
    check_all(cases, grad=True, rtol=1e-4, atol=1e-4)


def test_grid_with_cubic_interpolation() -> None:
    check(lambda x, g: F.grid_sample(x, g, mode="bicubic", align_corners=True), _x(1, 2, 5, 6), GRID)


def test_positions_of_maxima_with_nan() -> None:
    x = torch.tensor([[[[1.0, float("nan"), 2.0, 2.0], [1.0, float("nan"), 0.0, 2.0]]]])
    check(lambda x: F.max_pool2d(x, 2, return_indices=True)[1], x)


def test_averages_of_bfloat16_are_summed_in_float32() -> None:
    check(lambda x: F.avg_pool2d(x, 8), _x(1, 2, 16, 16).bfloat16(), rtol=0, atol=0)
