"""CPU tensors in compiled functions: what comes back to them, and what Dynamo refuses."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

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


def copied(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    host = (x @ w).cpu()
    return host.exp(), (x @ w).relu(), host[0], host.sum()


@pytest.mark.parametrize("options", [{}, {"fallback_execution": True}], ids=["compiled", "may fall back"])
def test_what_the_program_copies_to_the_cpu_is_there(options: dict[str, Any]) -> None:
    x, w = (torch.randn(3, 3, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    host = [tensor.clone().requires_grad_() for tensor in (x, w)]
    device = [tensor.to("neuron").requires_grad_() for tensor in (x, w)]
    results, expected = compiled(copied, options=options)(*device), copied(*host)
    assert [result.device.type for result in results] == ["cpu", "neuron", "cpu", "cpu"]
    for result, other in zip(results, expected, strict=True):
        torch.testing.assert_close(result.cpu(), other)
    sum(result.sum().cpu() for result in results).backward()
    sum(other.sum() for other in expected).backward()
    for one, other in zip(device, host, strict=True):
        assert one.grad.device.type == "neuron"
        torch.testing.assert_close(one.grad.cpu(), other.grad)
    with torch.no_grad():
        assert [result.device.type for result in compiled(copied)(*device)] == ["cpu", "neuron", "cpu", "cpu"]


def made(x: Tensor) -> tuple[Tensor, ...]:
    lengths = torch.tensor([2, 1])
    return x * 2, lengths, lengths.sum(), torch.arange(3).to(x.device) + x


@pytest.mark.parametrize(
    ("device", "places"), [("neuron", ["neuron", "cpu", "cpu", "neuron"]), ("cpu", ["neuron"] * 4)]
)
def test_what_the_program_makes_on_the_cpu_is_there(device: str, places: list[str]) -> None:
    """Unless it is given arguments on the CPU, which count as if they were on the device."""
    results = compiled(made)(torch.ones(3, device=device))
    assert [result.device.type for result in results] == places
    assert all(torch.equal(one.cpu(), other) for one, other in zip(results, made(torch.ones(3)), strict=True))


def test_what_runs_between_graphs_gets_it_there() -> None:
    model = nn.LSTM(4, 4, batch_first=True)
    x = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))

    def packed(model: nn.Module, x: Tensor) -> Tensor:
        sequence = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([3, 2]), batch_first=True)
        result: Tensor = nn.utils.rnn.pad_packed_sequence(model(sequence)[0], batch_first=True)[0]
        return result

    expected = packed(model, x)
    result = torch.compile(packed, backend="neuron")(model.to("neuron"), x.to("neuron"))
    torch.testing.assert_close(result.cpu(), expected)


def test_its_gradients_are_no_arguments_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_NEURONX_DYNAMO_DISABLE_CPU_AUTOCOPY", "1")
    x = torch.ones(3, device="neuron", requires_grad=True)
    compiled(lambda x: (x * 2).cpu())(x).sum().backward()
    assert x.grad.tolist() == [2.0] * 3


def test_an_argument_on_the_cpu_takes_what_the_program_copies_to_it() -> None:
    def write(host: Tensor, x: Tensor) -> Tensor:
        host.copy_(x * 2)
        return host + 1

    host = torch.zeros(3)
    result = compiled(write)(host, torch.ones(3, device="neuron"))
    assert (host.tolist(), result.tolist(), result.device.type) == ([2.0] * 3, [3.0] * 3, "cpu")


@pytest.mark.parametrize(
    "function",
    [
        torch.add,
        torch.matmul,
        torch.nn.functional.linear,
        lambda x, y: torch.cat([x, y]),
        lambda x, y: y.clone().add_(x),
    ],
)
def test_a_mixture_of_devices_says_what_to_move(function: Callable[..., torch.Tensor]) -> None:
    """In eager mode's words: as eager mode's error after the graph break, else as the reason of the refused break."""
    mixture = torch.ones(3, 3), torch.ones(3, 3).to("neuron")
    with pytest.raises(RuntimeError) as eager:
        function(*mixture)
    assert "Move it there with .to('neuron:0')" in str(eager.value)
    with pytest.raises(torch._dynamo.exc.Unsupported) as refused:
        compiled(function)(*mixture)
    assert refused.value.gb_type == "Tensor device mismatch"
    assert str(eager.value) in str(refused.value)
    with pytest.raises(RuntimeError) as broken:
        torch.compile(function, backend="neuron")(*mixture)
    assert (type(broken.value), str(broken.value)) == (type(eager.value), str(eager.value))


def test_arguments_that_may_be_on_the_cpu_break_nothing() -> None:
    x, index = torch.arange(6.0).to("neuron"), torch.tensor([4, 1])

    def function(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return x[index] + x.new_zeros(2).copy_(torch.ones(2))

    torch.testing.assert_close(compiled(function)(x, index).cpu(), torch.tensor([5.0, 2.0]))
