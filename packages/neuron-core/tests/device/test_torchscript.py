"""TorchScript modules, for as long as PyTorch has them: moved to the device they run as on the CPU."""

import io

import pytest
import torch
from torch import nn

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*torch.jit.*:DeprecationWarning",
    "ignore:.*torch.jit.*:FutureWarning",  # from torch 2.14 on
)


class Gate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.scale = 2.0

    def forward(self, x: torch.Tensor, times: int) -> torch.Tensor:
        for _ in range(times):
            if x.sum() > 0:
                x = torch.tanh(self.linear(x)) * self.scale
            else:
                x = x + torch.ones(x.size(0), 4, device=x.device)
        return x


def test_scripted_modules_move() -> None:
    torch.manual_seed(0)
    scripted = torch.jit.script(Gate())
    x = torch.randn(3, 4)
    expected = scripted(x, 3)
    moved = scripted.to("neuron")
    for _ in range(3):  # the profiling executor changes plans after the first runs
        found = moved(x.to("neuron"), 3)
        assert found.is_neuron
        torch.testing.assert_close(found.cpu(), expected)


def test_traced_modules_move_and_train() -> None:
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    traced = torch.jit.trace(net, torch.ones(2, 4)).to("neuron")
    loss = traced(torch.ones(2, 4, device="neuron")).sum()
    loss.backward()
    assert all(parameter.grad is not None and parameter.grad.is_neuron for parameter in traced.parameters())
    on_device = torch.jit.trace(net.to("neuron"), torch.ones(2, 4, device="neuron"))
    torch.testing.assert_close(on_device(torch.ones(2, 4, device="neuron")).sum(), loss)


def test_saved_modules_load_on_either_device() -> None:
    scripted = torch.jit.script(nn.Linear(3, 2))
    x = torch.ones(1, 3)
    expected = scripted(x)
    for start, end in (("cpu", "neuron"), ("neuron", "cpu"), ("neuron", "neuron:1")):
        buffer = io.BytesIO()
        torch.jit.save(scripted.to(start), buffer)
        buffer.seek(0)
        found = torch.jit.load(buffer, map_location=end)
        assert found.weight.device == torch.empty(0, device=end).device
        torch.testing.assert_close(found(x.to(end)).cpu(), expected)


def test_frozen_modules_run() -> None:
    net = torch.jit.script(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU()).to("neuron").eval())
    x = torch.ones(1, 1, 5, 5, device="neuron")
    torch.testing.assert_close(torch.jit.freeze(net)(x), net(x))
