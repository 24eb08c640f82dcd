"""The offered kernel against PyTorch: values, gradients, eager and compiled."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from torch_neuronx import metrics


@pytest.mark.parametrize("compiles", [False, True], ids=["eager", "compiled"])
def test_it_runs_in_place_of_pytorchs(compiles: bool) -> None:
    torch.manual_seed(0)
    function: Callable[..., Any] = lambda x: F.logsigmoid(x * 20)  # noqa: E731
    host = torch.randn(3, 130, 16, requires_grad=True)
    device = host.detach().to("neuron").requires_grad_()
    before = metrics.get_counter_value("Kernels.Simulated.log_sigmoid_kernel") or 0
    run = torch.compile(function, backend="neuron", fullgraph=True) if compiles else function
    expected, actual = function(host), run(device)
    torch.testing.assert_close(actual.cpu(), expected, rtol=1e-5, atol=1e-5)
    expected.sum().backward()
    actual.sum().backward()
    torch.testing.assert_close(device.grad.cpu(), host.grad, rtol=1e-5, atol=1e-5)
    assert metrics.get_counter_value("Kernels.Simulated.log_sigmoid_kernel") == before + 1


def test_what_it_does_not_serve_is_pytorchs() -> None:
    before = metrics.get_counter_value("Kernels.Simulated.log_sigmoid_kernel")
    x = torch.randn(4, 4, device="neuron", dtype=torch.float16)
    torch.testing.assert_close(F.logsigmoid(x).cpu(), F.logsigmoid(x.cpu()))
    assert metrics.get_counter_value("Kernels.Simulated.log_sigmoid_kernel") == before
