"""Outputs that lie in one memory, as in eager mode: what is written into one of them later shows in the other."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from torch_neuronx.compiler import compile_only

from .helpers import compiled

Outputs = Callable[[Tensor], tuple[Tensor, ...]]

OUTPUTS: dict[str, Outputs] = {
    "two parts": lambda x: (lambda y: (y[:2], y[2:]))(x + 1),
    "two parts and the whole": lambda x: (lambda y: (y[:2], y[2:], y))(x + 1),
    "parts that overlap": lambda x: (lambda y: (y[1:3].t(), y[:, ::2], y.diagonal()))(x + 1),
    "of a transposed tensor": lambda x: (lambda y: (y, y.t(), y.t().view(-1)))(x.t() * 2),
    "by strides": lambda x: (lambda y: (y.as_strided((2, 3), (3, 1), 1), y.unfold(0, 2, 1)))(x + 1),
    "after a write into one": lambda x: (lambda y: (y[0].add_(3), y.view(-1)))(x + 1),
    "float64": lambda x: (lambda y: (y[:2], y))(x.double() + 1),
    "complex": lambda x: (lambda y: (y[:2], y))(torch.complex(x, x) * 2),
    "integers": lambda x: (lambda y: (y.view(-1), y))((x * 10).int()),
    "on the CPU": lambda x: (lambda y: (y[:2], y, y.sum()))((x + 1).cpu()),
    "no other": lambda x: (x[:1] + 1, x[1:] + 1),
    "an argument": lambda x: (x[0], x, x + 1),
}


def _memories(outputs: Sequence[Tensor]) -> list[int]:
    places = [output.untyped_storage().data_ptr() for output in outputs]
    return [places.index(place) for place in places]


def _arguments(grad: bool) -> tuple[Tensor, Tensor]:
    host = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
    return host.requires_grad_(grad), host.detach().to("neuron").requires_grad_(grad)


@pytest.mark.filterwarnings("ignore::torch_neuronx.errors.Float64Warning")
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", OUTPUTS)
def test_they_share_as_in_eager_mode(name: str, grad: bool) -> None:
    host, device = _arguments(grad)
    expected = OUTPUTS[name](host)
    for _ in range(2):  # the second time from AOT Autograd's cache
        torch._dynamo.reset()
        actual = compiled(OUTPUTS[name])(device)
        assert _memories(actual) == _memories(expected)
        for one, other in zip(expected, actual, strict=True):
            assert (other.shape, other.stride(), other.requires_grad) == (one.shape, one.stride(), one.requires_grad)
            torch.testing.assert_close(other.cpu(), one)


def test_a_write_into_one_shows_in_the_others() -> None:
    host, device = _arguments(grad=False)
    (first, rest, whole), expected = compiled(OUTPUTS["two parts and the whole"])(device), host + 1
    first.zero_()
    whole[3] += 5
    expected[:2] = 0
    expected[3] += 5
    assert torch.equal(whole.cpu(), expected)
    assert torch.equal(rest.cpu(), expected[2:])


def test_gradients_of_outputs_that_share() -> None:
    host, device = _arguments(grad=True)
    for x, call in ((host, OUTPUTS["two parts"]), (device, compiled(OUTPUTS["two parts"]))):
        first, rest = call(x)
        (first.sum() + 2 * rest.square().sum()).backward()
    assert device.grad is not None
    assert host.grad is not None
    torch.testing.assert_close(device.grad.cpu(), host.grad)


def test_without_running_they_share_too() -> None:
    with compile_only():
        outputs = compiled(OUTPUTS["two parts and the whole"])(_arguments(grad=False)[1])
    assert _memories(outputs) == [0, 0, 0]


def test_a_second_backward_pass() -> None:
    host, device = _arguments(grad=True)
    for _ in range(2):  # the second time from AOT Autograd's cache
        torch._dynamo.reset()
        host.grad = device.grad = None
        for x, call in ((host, torch.sin), (device, compiled(lambda x: x.sin().exp()))):
            loss = (call(x).exp() if x is host else call(x)).sum()
            loss.backward(retain_graph=True)
            loss.backward()
        assert device.grad is not None
        torch.testing.assert_close(device.grad.cpu(), host.grad)
