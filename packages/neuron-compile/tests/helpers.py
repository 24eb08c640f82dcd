"""Run a function three ways and compare: CPU eager, compiled on the device, gradients included."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return torch.compile(function, backend="neuron", fullgraph=True, **options)


def on_device(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [tensor.detach().to("neuron").requires_grad_(tensor.requires_grad) for tensor in tensors]


def check(
    function: Callable[..., Any], *inputs: Tensor, grad: bool = False, rtol: float = 1e-5, atol: float = 1e-5
) -> None:
    """Assert that the compiled function gives what the CPU gives; with ``grad``, that its gradients do too."""
    host = [tensor.detach().clone().requires_grad_(grad and tensor.is_floating_point()) for tensor in inputs]
    device = on_device(host)
    expected, actual = function(*host), compiled(function)(*device)
    single = isinstance(expected, Tensor)
    expected, actual = ([expected], [actual]) if single else (list(expected), list(actual))
    for one, other in zip(expected, actual, strict=True):
        assert other.device.type == "neuron"
        assert other.dtype == one.dtype
        torch.testing.assert_close(other.cpu(), one, rtol=rtol, atol=atol)
    if grad:
        weights = [torch.linspace(-1, 1, one.numel()).reshape(one.shape) for one in expected]
        sum((one * weight).sum() for one, weight in zip(expected, weights, strict=True)).backward()
        sum((one * weight.to("neuron")).sum() for one, weight in zip(actual, weights, strict=True)).backward()
        for one, other in zip(host, device, strict=True):
            assert (one.grad is None) == (other.grad is None)
            if one.grad is not None:
                torch.testing.assert_close(other.grad.cpu(), one.grad, rtol=rtol, atol=atol)
