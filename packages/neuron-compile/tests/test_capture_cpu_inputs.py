"""CPU tensors in compiled functions: what comes back to them, and what Dynamo refuses."""

import copy

import pytest
import torch
from torch import nn

from .helpers import compiled


def test_buffers_on_the_cpu_are_written_back_and_gradients_land_there() -> None:
    model = nn.BatchNorm1d(4)
    expected = copy.deepcopy(model)
    x = torch.randn(8, 4)
    output = compiled(model)(x)
    assert output.device.type == "neuron"
    (output * torch.linspace(-1, 1, 4, device="neuron")).sum().backward()
    (expected(x) * torch.linspace(-1, 1, 4)).sum().backward()
    for (name, one), other in zip(model.named_buffers(), dict(expected.named_buffers()).values(), strict=True):
        assert one.device.type == "cpu", name
        torch.testing.assert_close(one, other)
    for one, other in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-5)


def test_numbers_on_the_cpu_are_read() -> None:
    function = compiled(lambda x, number: x * number + torch.tensor(2.0))
    x = torch.ones(3, device="neuron")
    for value in (3.0, 4.0):
        assert function(x, torch.tensor(value)).tolist() == [value + 2] * 3


def test_a_mixture_of_devices_says_what_to_move() -> None:
    model = nn.Linear(4, 2).to("neuron")
    with pytest.raises(RuntimeError, match=r"cpu and neuron:0(.|\n)*Move inputs, parameters, and buffers"):
        compiled(model)(torch.randn(3, 4))
