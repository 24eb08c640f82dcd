"""What a compiled call does with its arguments and results."""

import gc
import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn

from .helpers import check, compiled


def test_a_module_trains_as_on_the_cpu() -> None:
    def train(device: str, backend: bool) -> list[float]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4)).to(device)
        data, target = torch.randn(32, 8).to(device), torch.randn(32, 4).to(device)
        forward = compiled(model) if backend else model
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        losses = []
        for _ in range(10):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(forward(data), target)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    expected = train("cpu", False)
    assert expected[-1] < expected[0]
    assert train("neuron", True) == pytest.approx(expected, abs=1e-5)


def test_buffers_are_updated() -> None:
    models = {device: nn.BatchNorm1d(4).to(device) for device in ("cpu", "neuron")}
    x = torch.randn(8, 4)
    models["cpu"](x)
    compiled(models["neuron"])(x.to("neuron"))
    for name, buffer in models["cpu"].named_buffers():
        other = dict(models["neuron"].named_buffers())[name]
        assert other.device.type == "neuron"
        torch.testing.assert_close(other.cpu(), buffer)


def test_an_input_is_changed_in_place() -> None:
    def function(x: Tensor) -> Tensor:
        x.mul_(2)
        return x + 1

    x = torch.ones(3, device="neuron")
    assert torch.equal(compiled(function)(x).cpu(), torch.full((3,), 3.0))
    assert torch.equal(x.cpu(), torch.full((3,), 2.0))


def test_an_output_that_is_an_input_is_that_tensor() -> None:
    x = torch.ones(3, device="neuron")
    same, other = compiled(lambda x: (x, x + 1))(x)
    assert same is x
    assert torch.equal(other.cpu(), torch.full((3,), 2.0))


def test_outputs_may_repeat_and_may_be_views() -> None:
    check(lambda x: ((y := x + 1), y, y.t(), y[0]), torch.randn(3, 4))


def test_non_contiguous_inputs_are_read_by_their_strides() -> None:
    x = torch.arange(12.0).reshape(3, 4)
    for view in (x.t(), x[:, 1:3], x[::2], x.expand(2, 3, 4)):
        torch._dynamo.reset()
        check(lambda x: x * 2 + 1, view)


def test_unaligned_inputs_are_read_where_they_are() -> None:
    """XLA copies what is not aligned to 64 bytes: that copy must not be taken for the tensor at the next call."""
    base = torch.arange(65.0, device="neuron")
    view = base[1:]
    function = compiled(lambda x: x + 1)
    assert torch.equal(function(view).cpu(), torch.arange(1.0, 65.0) + 1)
    base.zero_()
    assert torch.equal(function(view).cpu(), torch.ones(64))


def test_a_remembered_address_holds_what_is_there_now() -> None:
    function = compiled(lambda x: x + 1)
    x = torch.zeros(64, device="neuron")
    for value in range(5):
        x.fill_(value)
        assert torch.equal(function(x).cpu(), torch.full((64,), value + 1.0))


def test_functions_without_tensors_compile() -> None:
    result = compiled(lambda: torch.arange(4, device="neuron") * 2)()
    assert result.device.type == "neuron"
    assert result.tolist() == [0, 2, 4, 6]


def test_cpu_inputs_are_copied_and_outputs_stay_on_the_device() -> None:
    result = compiled(lambda x: x * 2)(torch.ones(3))
    assert result.device.type == "neuron"
    assert torch.equal(result.cpu(), torch.full((3,), 2.0))


def test_cpu_inputs_are_refused_where_copies_are_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_NEURONX_DYNAMO_DISABLE_CPU_AUTOCOPY", "1")
    with pytest.raises(RuntimeError, match="Input tensor at index 0 is on cpu device, expected neuron"):
        compiled(lambda x: x * 2)(torch.ones(3))


def test_outputs_retain_their_device_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_NEURONX_RETAIN_DEVICE_MODE", "1")
    assert compiled(lambda x: x * 2)(torch.ones(3)).device.type == "cpu"
    assert compiled(lambda x: x * 2)(torch.ones(3, device="neuron")).device.type == "neuron"


def test_a_model_on_the_cpu_gets_its_gradients_there() -> None:
    model = nn.Linear(4, 2)
    x = torch.randn(3, 4)
    model(x).sum().backward()
    expected = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    output = compiled(model)(x)
    assert output.device.type == "neuron"
    output.sum().backward()
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        assert parameter.grad.device.type == "cpu"
        torch.testing.assert_close(parameter.grad, gradient)


def test_outputs_are_accounted_as_device_memory() -> None:
    function = compiled(lambda x: x + 1)
    x = torch.zeros(1 << 20, device="neuron")
    function(x)
    gc.collect()
    before = torch.accelerator.memory_allocated()
    result = function(x)
    assert torch.accelerator.memory_allocated() - before == result.numel() * 4
    del result
    assert torch.accelerator.memory_allocated() == before


def test_inputs_are_not_kept() -> None:
    produce, consume = compiled(lambda x: x * 3 + 1), compiled(lambda x: x.sum())
    x = torch.zeros(1 << 20, device="neuron")
    expected = consume(produce(x)).item()
    gc.collect()
    before = torch.accelerator.memory_allocated()
    for tensor in (produce(x), torch.ones(1 << 20, device="neuron")):
        assert consume(tensor).item() == expected
    del tensor
    assert torch.accelerator.memory_allocated() == before


def test_every_core_runs_its_own_program() -> None:
    for index in (0, 1):
        torch._dynamo.reset()
        result = compiled(lambda x: x + 1)(torch.ones(3, device=f"neuron:{index}"))
        assert result.device == torch.device("neuron", index)


def test_autocast_is_part_of_the_graph() -> None:
    def function(x: Tensor) -> Tensor:
        with torch.autocast("neuron", dtype=torch.bfloat16):
            return x @ x

    x = torch.randn(4, 4, device="neuron")
    result = compiled(function)(x)
    assert result.dtype == torch.bfloat16
    torch.testing.assert_close(result.cpu(), function(x).cpu())


def test_an_input_that_is_changed_in_place_has_no_second_tensor_afterwards() -> None:
    def function(x: Tensor) -> Tensor:
        x.mul_(2)
        return x.sum()

    run = compiled(function)
    x = torch.ones(256, 1024, device="neuron")
    for _ in range(3):
        total = run(x)
        gc.collect()
        seen = torch.accelerator.memory_allocated()
        del total
    torch.accelerator.reset_peak_memory_stats()
    before = torch.accelerator.memory_allocated()
    run(x)
    assert seen - before < 2**16  # the sum
    assert torch.accelerator.max_memory_allocated() - before < x.nbytes + 2**16  # the new value, until it is copied


def test_a_forked_child_is_told() -> None:
    """The threads that would run the program are the parent's: the call would wait for ever."""
    code = """
import os
import torch
x = torch.ones(600, 600, device="neuron")
call = torch.compile(lambda x: (x @ x).sin().sum(0), backend="neuron")
call(x)
if (child := os.fork()) == 0:
    try:
        call(x)
    except RuntimeError as error:
        print(type(error).__name__, error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert run.stdout.startswith("DeviceError Cannot use device neuron in a forked child"), run.stderr
