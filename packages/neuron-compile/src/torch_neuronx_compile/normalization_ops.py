"""Layer norm as one operator, and its gradient as one, until a graph is lowered.

Everything is float32 inside. The definitions here serve graphs that run in eager mode, and what the operators do not
take.
"""

import torch
from torch import Tensor

from torch_neuronx_compile.decompositions.narrow_floats import widened
from torch_neuronx_compile.ops import Operator, define

Three = tuple[Tensor, Tensor, Tensor]


def layer_norm(input: Tensor, weight: Tensor | None, bias: Tensor | None, axes: int, eps: float) -> Three:
    """Normalize over the last ``axes`` axes; return the result, and the float32 mean and inverse deviation.

    The statistics keep the axes, with extent 1. ``input`` is float32 or narrower.
    """
    define()
    found: Three = torch.ops.neuron_compile.layer_norm(input, weight, bias, axes, eps)
    return found


def layer_norm_backward(
    grad: Tensor, input: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor | None, axes: int
) -> Three:
    """Return the gradients of the input, the weight and the bias; without a weight the last two are float32."""
    define()
    found: Three = torch.ops.neuron_compile.layer_norm_backward(grad, input, mean, rstd, weight, axes)
    return found


def normalize(input: Tensor, weight: Tensor | None, bias: Tensor | None, axes: int, eps: float) -> Three:
    """Compute what :func:`layer_norm` gives; float64 stays what it is."""
    dims = list(range(input.dim() - axes, input.dim()))
    wide = widened(input)
    mean = wide.mean(dims, keepdim=True)
    centred = wide - mean
    rstd = ((centred * centred).mean(dims, keepdim=True) + eps).rsqrt()
    output = centred * rstd
    if weight is not None:
        output = output * weight
    if bias is not None:
        output = output + bias
    return output.to(input.dtype), mean, rstd


def differentiate(grad: Tensor, input: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor | None, axes: int) -> Three:
    """Compute what :func:`layer_norm_backward` gives, with one mean over each of two products."""
    split = input.dim() - axes
    inner, outer = list(range(split, input.dim())), list(range(split))
    wide = widened(grad)
    normal = (widened(input) - mean) * rstd
    scaled = wide if weight is None else wide * weight
    along = (scaled * normal).mean(inner, keepdim=True)
    grad_input = ((scaled - scaled.mean(inner, keepdim=True) - normal * along) * rstd).to(input.dtype)
    product = wide * normal
    grad_weight = product.sum(outer) if outer else product
    grad_bias = wide.sum(outer) if outer else wide.clone()
    dtype = wide.dtype if weight is None else weight.dtype
    return grad_input, grad_weight.to(dtype), grad_bias.to(dtype)


def _fake_forward(input: Tensor, weight: Tensor | None, bias: Tensor | None, axes: int, eps: float) -> Three:
    shape = [*input.shape[: input.dim() - axes], *[1] * axes]
    mean, rstd = (input.new_empty(shape, dtype=torch.float32) for _ in range(2))
    return input.new_empty(input.shape), mean, rstd


def _fake_backward(grad: Tensor, input: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor | None, axes: int) -> Three:
    shape, dtype = input.shape[input.dim() - axes :], torch.float32 if weight is None else weight.dtype
    grad_weight, grad_bias = (input.new_empty(shape, dtype=dtype) for _ in range(2))
    return input.new_empty(input.shape), grad_weight, grad_bias


OPERATORS: tuple[Operator, ...] = (
    (
        "layer_norm(Tensor input, Tensor? weight, Tensor? bias, int axes, float eps) -> (Tensor, Tensor, Tensor)",
        normalize,
        _fake_forward,
    ),
    (
        "layer_norm_backward(Tensor grad, Tensor input, Tensor mean, Tensor rstd, Tensor? weight, int axes)"
        " -> (Tensor, Tensor, Tensor)",
        differentiate,
        _fake_backward,
    ),
)
"""Schemas, kernels, and what they give for fake tensors."""
