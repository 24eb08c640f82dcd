"""Convolutions and their gradients, transposed ones included, as one general convolution each."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from torch_neuronx_compile.structured_ops import convolve

aten = torch.ops.aten


def _each(values: Sequence[int], count: int) -> list[int]:
    return [*values] * count if len(values) == 1 else [*values]


def _transposed_weight(weight: Tensor, groups: int) -> Tensor:
    """Swap a weight's output and input features group by group and reverse it in space."""
    spatial = list(range(2, weight.dim()))
    outputs, inputs = weight.shape[0] // groups, weight.shape[1]
    parts = weight.reshape([groups, outputs, inputs, *weight.shape[2:]]).transpose(1, 2)
    return parts.reshape([groups * inputs, outputs, *weight.shape[2:]]).flip(spatial)


def _spread(
    grad: Tensor,
    weight: Tensor,
    sizes: Sequence[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
) -> Tensor:
    """Return what a convolution's gradient is with respect to its input of the spatial ``sizes``."""
    around = []
    for i, size in enumerate(sizes):
        reach = (weight.shape[2 + i] - 1) * dilation[i]
        before = reach - padding[i]
        laid_out = (grad.shape[2 + i] - 1) * stride[i] + 1
        around.append((before, size + reach - before - laid_out))
    ones = [1] * len(sizes)
    return convolve(grad, _transposed_weight(weight, groups), ones, around, stride, dilation, groups)


def _weight_gradient(
    input: Tensor, grad: Tensor, weight: Tensor, stride: list[int], padding: list[int], dilation: list[int], groups: int
) -> Tensor:
    """Correlate input and gradient over the batch; ``weight`` gives the shape."""
    around = []
    for i in range(len(stride)):
        laid_out = (grad.shape[2 + i] - 1) * stride[i] + 1
        needed = (weight.shape[2 + i] - 1) * dilation[i] + laid_out
        around.append((padding[i], needed - input.shape[2 + i] - padding[i]))
    features, kernels = input.transpose(0, 1), grad.transpose(0, 1)
    found = convolve(features, kernels, dilation, around, None, stride, 1, groups)
    return found.transpose(0, 1)


def convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Tensor:
    """Decompose; a transposed convolution is the gradient of one with respect to its input."""
    spatial = weight.dim() - 2
    if input.is_complex() or input.dim() == spatial + 1:
        return NotImplemented  # type: ignore[no-any-return]
    stride, padding, dilation = (_each(values, spatial) for values in (stride, padding, dilation))
    if transposed:
        extra = _each(output_padding, spatial)
        sizes = [
            (input.shape[2 + i] - 1) * stride[i]
            - 2 * padding[i]
            + dilation[i] * (weight.shape[2 + i] - 1)
            + extra[i]
            + 1
            for i in range(spatial)
        ]
        outputs = weight.shape[1] * groups
    else:
        sizes = [
            (input.shape[2 + i] + 2 * padding[i] - dilation[i] * (weight.shape[2 + i] - 1) - 1) // stride[i] + 1
            for i in range(spatial)
        ]
        outputs = weight.shape[0]
    if input.numel() == 0 or weight.numel() == 0:
        result = input.new_zeros([input.shape[0], outputs, *sizes])
    elif transposed:
        result = _spread(input, weight, sizes, stride, padding, dilation, groups)
    else:
        result = convolve(input, weight, stride, [(amount, amount) for amount in padding], None, dilation, groups)
    return result if bias is None else result + bias.reshape([-1, *[1] * spatial])


def convolution_backward(
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Decompose the three gradients."""
    spatial = weight.dim() - 2
    if input.is_complex() or input.dim() == spatial + 1:
        return NotImplemented  # type: ignore[no-any-return]
    stride, padding, dilation = (_each(values, spatial) for values in (stride, padding, dilation))
    empty = grad_output.numel() == 0 or input.numel() == 0 or weight.numel() == 0
    grad_input = grad_weight = grad_bias = None
    if output_mask[0]:
        if empty:
            grad_input = torch.zeros_like(input)
        elif transposed:
            pairs = []
            for i, amount in enumerate(padding):
                reach = (weight.shape[2 + i] - 1) * dilation[i] + 1
                needed = (input.shape[2 + i] - 1) * stride[i] + reach
                pairs.append((amount, needed - grad_output.shape[2 + i] - amount))
            grad_input = convolve(grad_output, weight, stride, pairs, None, dilation, groups)
        else:
            grad_input = _spread(grad_output, weight, input.shape[2:], stride, padding, dilation, groups)
    if output_mask[1]:
        if empty:
            grad_weight = torch.zeros_like(weight)
        else:
            pair = (grad_output, input) if transposed else (input, grad_output)
            grad_weight = _weight_gradient(*pair, weight, stride, padding, dilation, groups)
    if output_mask[2]:
        grad_bias = grad_output.sum([0, *range(2, grad_output.dim())])
    return grad_input, grad_weight, grad_bias


DECOMPOSITIONS: dict[OpOverload, Callable[..., Any]] = {
    aten.convolution.default: convolution,
    aten.convolution_backward.default: convolution_backward,
}
