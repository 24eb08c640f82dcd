"""Tensor subclasses with tensors inside, as inputs, outputs and parameters of compiled functions."""

import pytest
import torch
from torch import Tensor, nn
from torch.testing._internal.two_tensor import TwoTensor

from torch_neuronx_compile.errors import StaticShapeError

from .helpers import compiled


def _two(*shape: int, device: str = "cpu") -> TwoTensor:
    generator = torch.Generator().manual_seed(sum(shape))
    a, b = (torch.randn(shape, generator=generator).to(device) for _ in range(2))
    return TwoTensor(a, b)


def _parts(value: Tensor) -> list[Tensor]:
    assert type(value) is TwoTensor
    return [value.a.cpu(), value.b.cpu()]


def test_values_and_gradients() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        return torch.nn.functional.gelu(x @ y).sin() * 2

    results = []
    for device, call in (("cpu", function), ("neuron", compiled(function))):
        x = _two(3, 4, device=device).requires_grad_()
        y = torch.linspace(-1, 1, 20).reshape(4, 5).to(device)
        out = call(x, y)
        out.sum().backward()
        assert x.grad is not None
        results.append([*_parts(out.detach()), *_parts(x.grad)])
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


def test_a_mutated_subclass_is_written_back() -> None:
    x = _two(4, device="neuron")
    a, b = x.a.cpu(), x.b.cpu()
    compiled(lambda x: x.mul_(3).sum())(x)
    torch.testing.assert_close(_parts(x), [a * 3, b * 3])


@pytest.mark.parametrize("frozen", [False, True])
def test_parameters_of_a_subclass(frozen: bool) -> None:
    """As quantized and low-rank weights are; PyTorch's desugaring is traced like any other operators."""
    results = []
    for device in ("cpu", "neuron"):
        layer = nn.Linear(4, 3, bias=False, device=device)
        layer.weight = nn.Parameter(_two(3, 4, device=device), requires_grad=not frozen)
        call = layer if device == "cpu" else compiled(layer)
        x = torch.linspace(-1, 1, 8).reshape(2, 4).to(device).requires_grad_()
        out = call(x)
        out.sum().backward()
        results.append([*_parts(out.detach()), *([] if frozen else _parts(layer.weight.grad))])
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


def test_a_nested_tensor_is_refused_with_what_to_do() -> None:
    """Its ragged dimension has no one size; what is made and padded inside has."""
    rows = [torch.ones(2, 4, device="neuron"), torch.ones(3, 4, device="neuron")]
    nested = torch.nested.nested_tensor(rows, layout=torch.jagged)
    with pytest.raises(StaticShapeError, match=r"nested tensor.*Pad it with torch\.nested\.to_padded_tensor"):
        torch.compile(lambda x: x * 2, backend="neuron")(nested)

    def padded(rows: list[Tensor]) -> Tensor:
        return torch.nested.to_padded_tensor(torch.nested.nested_tensor(rows, layout=torch.jagged), 0.0)

    assert torch.equal(torch.compile(padded, backend="neuron")(rows), padded(rows))
