"""Run a function three ways and compare: CPU eager, compiled on the device, gradients included."""

from collections.abc import Callable, Mapping, Sequence
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
        torch.testing.assert_close(other.cpu(), one, rtol=rtol, atol=atol, equal_nan=True)
    if grad:
        weights = [torch.linspace(-1, 1, one.numel()).reshape(one.shape) for one in expected]
        sum((one * weight).sum() for one, weight in zip(expected, weights, strict=True)).backward()
        sum((one * weight.to("neuron")).sum() for one, weight in zip(actual, weights, strict=True)).backward()
        for one, other in zip(host, device, strict=True):
            assert (one.grad is None) == (other.grad is None)
            if one.grad is not None:
                torch.testing.assert_close(other.grad.cpu(), one.grad, rtol=rtol, atol=atol)


def check_all(
    cases: Mapping[str, tuple[Callable[..., Any], tuple[Tensor, ...]]],
    *,
    grad: bool = False,
    rtol: float = 1e-5,
    atol: float = 1e-5,
) -> None:
    """Assert as :func:`check` that every case gives what the CPU gives; all are one graph, which compiles faster.

    NaN equals NaN. Only results that have a gradient take part in the backward graph.
    """

    def all_of_them(inputs: Sequence[Sequence[Tensor]]) -> list[list[Tensor]]:
        found = [case(*given) for (case, _), given in zip(cases.values(), inputs, strict=True)]
        return [[one] if isinstance(one, Tensor) else list(one) for one in found]

    host = [
        [tensor.detach().clone().requires_grad_(grad and tensor.is_floating_point()) for tensor in inputs]
        for _, inputs in cases.values()
    ]
    device = [on_device(tensors) for tensors in host]
    expected, actual = all_of_them(host), compiled(all_of_them)(device)
    for name, ones, others in zip(cases, expected, actual, strict=True):
        for one, other in zip(ones, others, strict=True):
            assert (other.device.type, other.dtype) == ("neuron", one.dtype), name
            _close(name, other, one, rtol, atol)
    if not grad:
        return
    for results in (expected, actual):
        flat = [one for ones in results for one in ones if one.requires_grad]
        weights = [torch.linspace(-1, 1, one.numel()).reshape(one.shape).to(one.device, one.dtype) for one in flat]
        torch.autograd.backward(flat, weights)
    for name, ones, others in zip(cases, host, device, strict=True):
        for one, other in zip(ones, others, strict=True):
            assert (one.grad is None) == (other.grad is None), name
            if one.grad is not None and other.grad is not None:
                _close(f"gradient of {name}", other.grad, one.grad, rtol, atol)


def _close(name: str, actual: Tensor, expected: Tensor, rtol: float, atol: float) -> None:
    torch.testing.assert_close(
        actual.cpu(), expected, rtol=rtol, atol=atol, equal_nan=True, msg=lambda text: f"{name}: {text}"
    )


def groups(cases: Mapping[str, Any], size: int) -> list[dict[str, Any]]:
    """Split cases into groups, each to be one graph."""
    items = list(cases.items())
    return [dict(items[i : i + size]) for i in range(0, len(items), size)]


def first_name(cases: Mapping[str, Any]) -> str:
    """Name a group in a test's id."""
    return f"{next(iter(cases))} and others"
