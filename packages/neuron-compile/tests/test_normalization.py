"""Layer norm in compiled graphs: as it is defined, and by ATen's kernel."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from .helpers import check, check_all, compiled

DEFINED, KERNEL = (2, 3, 4, 8), (2, 32, 4, 32)
"""Shapes that are normalized as layer norm is defined, and by ATen's kernel."""


@pytest.mark.parametrize("shape", [DEFINED, KERNEL], ids=["defined", "kernel"])
def test_layer_norm(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x, weight, bias = torch.randn(shape) * 3 + 1, torch.randn(shape[-1]), torch.randn(shape[-1])
    cases: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...]]] = {
        "plain": (lambda a: layer_norm(a, shape[-1:]), (x,)),
        "weight": (lambda a, w: layer_norm(a, shape[-1:], w), (x, weight)),
        "bias": (lambda a, b: layer_norm(a, shape[-1:], None, b), (x, bias)),
        "weight and bias": (lambda a, w, b: layer_norm(a, shape[-1:], w, b, eps=0.1), (x, weight, bias)),
        "two axes": (lambda a, w: layer_norm(a, shape[-2:], w), (x, torch.randn(shape[-2:]))),
        "every axis": (lambda a, w: layer_norm(a, shape, w), (x, torch.randn(shape))),
        "another order": (lambda a, w: layer_norm(a.transpose(1, 2), shape[-1:], w), (x, weight)),
        "a weight that has no gradient": (lambda a: layer_norm(a, shape[-1:], torch.ones_like(a[0, 0, 0])), (x,)),
    }
    check_all(cases, grad=True, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [DEFINED, KERNEL], ids=["defined", "kernel"])
@pytest.mark.parametrize("parameters", [None, torch.float32], ids=["narrow parameters", "float32 parameters"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 1e-2), (torch.float16, 2e-3)], ids=str)
def test_narrow_floats(
    dtype: torch.dtype, tolerance: float, parameters: torch.dtype | None, shape: tuple[int, ...]
) -> None:
    """Everything is float32 inside, which the CPU's own kernels are not: what is compared with is float32's result."""
    torch.manual_seed(0)
    given = [torch.randn(shape).to(dtype), *(torch.randn(shape[-1]).to(parameters or dtype) for _ in range(2))]
    wide, narrow = (
        [tensor.to(*to).detach().requires_grad_() for tensor in given] for to in ([torch.float32], ["neuron"])
    )

    def normalize(a: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return layer_norm(a, shape[-1:], w, b)

    expected, actual = normalize(*wide), compiled(normalize)(*narrow)
    weights = torch.linspace(-1, 1, expected.numel()).reshape(shape).to(dtype)
    expected.backward(weights.float())
    actual.backward(weights.to("neuron"))
    assert actual.dtype == dtype
    torch.testing.assert_close(actual.float().cpu(), expected, rtol=tolerance, atol=tolerance)
    for one, other in zip(wide, narrow, strict=True):
        assert other.grad.dtype == other.dtype
        torch.testing.assert_close(other.grad.float().cpu(), one.grad, rtol=tolerance, atol=tolerance)


@pytest.mark.filterwarnings("ignore::torch_neuronx.errors.Float64Warning")
def test_float64() -> None:
    check(lambda a: layer_norm(a, (4,)), torch.randn(2, 4, dtype=torch.float64), grad=True)


def test_nothing_to_normalize() -> None:
    check(lambda a: layer_norm(a, (4,)), torch.randn(0, 4), grad=True)


def test_the_backward_keeps_the_input_alone() -> None:
    x = torch.randn(64, 32, device="neuron", requires_grad=True)
    parameters = [torch.randn(32, device="neuron", requires_grad=True) for _ in range(2)]
    matrix = torch.randn(32, 32, device="neuron", requires_grad=True)

    def project(a: Tensor, w: Tensor, b: Tensor, m: Tensor) -> Tensor:
        return layer_norm(a, (32,), w, b) @ m

    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        compiled(project)(x, *parameters, matrix)
    assert kept
    assert {tensor.data_ptr() for tensor in kept} <= {tensor.data_ptr() for tensor in (x, *parameters, matrix)}
