"""The device guard: which core is current, per thread, and what runs where."""

import threading

import pytest
import torch

from torch_neuronx.errors import DeviceError

COUNT = 4


@pytest.fixture(autouse=True)
def _core_zero() -> None:
    torch.neuron.set_device(0)


def test_core_zero_is_current_at_first() -> None:
    assert torch.neuron.current_device() == 0
    assert torch.empty(1, device="neuron").device.index == 0


@pytest.mark.parametrize("core", [2, "neuron:2", torch.device("neuron", 2)])
def test_set_device(core: int | str | torch.device) -> None:
    torch.neuron.set_device(core)
    assert torch.neuron.current_device() == torch.accelerator.current_device_index() == 2
    assert torch.empty(1, device="neuron").device.index == 2
    assert torch.ones(1).neuron().device.index == 2
    torch.neuron.set_device("neuron")  # the current one
    assert torch.neuron.current_device() == 2


def test_contexts_nest_and_come_back() -> None:
    with torch.neuron.device(1):
        assert torch.neuron.current_device() == 1
        with torch.neuron.device("neuron:3"), torch.accelerator.device_index(2):
            assert torch.empty(1, device="neuron").device.index == 2
        assert torch.neuron.current_device() == 1
        with torch.neuron.device(None), torch.neuron.device(-1), torch.accelerator.device_index(None):
            assert torch.neuron.current_device() == 1
    assert torch.neuron.current_device() == 0


def test_a_context_comes_back_after_an_error() -> None:
    with pytest.raises(KeyError), torch.neuron.device(3):
        raise KeyError
    assert torch.neuron.current_device() == 0


def test_device_of_follows_a_tensor() -> None:
    with torch.neuron.device_of(torch.empty(1, device="neuron:3")):
        assert torch.neuron.current_device() == 3
    with torch.neuron.device_of(torch.empty(1)):
        assert torch.neuron.current_device() == 0


def test_each_thread_has_its_own_current_core() -> None:
    seen: list[int] = []

    def work() -> None:
        seen.append(torch.neuron.current_device())
        torch.neuron.set_device(3)
        seen.append(torch.empty(1, device="neuron").device.index)

    torch.neuron.set_device(1)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [0, 3]
    assert torch.neuron.current_device() == 1


def test_results_are_where_their_inputs_are() -> None:
    x = torch.randn(3, 3, device="neuron:2")
    for result in (x + x, x @ x, torch.empty_like(x), x.sum(), x.sort()[0], torch.cat([x, x]), x.nonzero(), x > 0):
        assert result.device.index == 2
    assert torch.neuron.current_device() == 0


def test_backward_runs_on_the_tensors_core() -> None:
    x = torch.randn(3, 3, device="neuron:1", requires_grad=True)
    ((x @ x).relu().sum() * 2).backward()
    assert x.grad is not None
    assert x.grad.device.index == 1
    assert torch.neuron.current_device() == 0


def test_devices_as_contexts_and_defaults() -> None:
    with torch.device("neuron:1"):
        assert torch.ones(2).device.index == 1
        assert torch.nn.Linear(2, 2).weight.device.index == 1
    torch.set_default_device("neuron:2")
    try:
        assert torch.zeros(2).device.index == torch.arange(3).device.index == torch.tensor([1.0]).device.index == 2
    finally:
        torch.set_default_device(None)
    assert torch.ones(2).device.type == "cpu"


@pytest.mark.parametrize("core", [4, 127, 300])
def test_no_such_core(core: int) -> None:
    uses = [
        lambda: torch.neuron.set_device(core),
        lambda: torch.neuron.synchronize(core),
        lambda: torch.neuron.device(core).__enter__(),
        lambda: torch.neuron.get_device_properties(core),
        lambda: torch.neuron.memory_allocated(core),
        lambda: torch.neuron.Stream(core),
        lambda: torch.neuron.get_rng_state(core),
    ]
    for use in uses:
        with pytest.raises(DeviceError, match=f"There is no device neuron:{core}: this process sees 4 Neuron cores"):
            use()
    assert torch.neuron.current_device() == 0


def test_no_such_core_by_name() -> None:
    uses = [
        lambda: torch.empty(1, device="neuron:4"),
        lambda: torch.ones(1).to("neuron:4"),
        lambda: torch.ones(1, device="neuron").to("neuron:4"),
        lambda: torch.nn.Linear(1, 1).to("neuron:4"),
        lambda: torch.Generator(device="neuron:4"),
        lambda: torch.Stream(device="neuron:4"),
        lambda: torch.accelerator.set_device_index(4),
        lambda: torch.accelerator.memory_allocated(4),
        lambda: torch.neuron.set_device("neuron:4"),
    ]
    for use in uses:
        with pytest.raises(DeviceError, match=r"neuron:0 to neuron:3.*NEURON_RT_VISIBLE_CORES"):
            use()


@pytest.mark.parametrize("device", ["cpu", "cuda:0", torch.device("meta")])
def test_another_device_is_no_core(device: str | torch.device) -> None:
    for use in (torch.neuron.set_device, torch.neuron.memory_allocated, torch.neuron.synchronize, torch.neuron.device):
        with pytest.raises(ValueError, match="Expected a neuron device"):
            use(device)


def test_cores_do_not_mix() -> None:
    x, y = torch.ones(3, device="neuron:0"), torch.ones(3, device="neuron:1")
    for mix in (lambda: x + y, lambda: torch.cat([x, y]), lambda: x.add_(y), lambda: torch.stack([x, y])):
        with pytest.raises(RuntimeError, match=r"same device.*neuron:0 and neuron:1"):
            mix()
    assert torch.equal(x.to("neuron:1") + y, torch.full((3,), 2.0, device="neuron:1"))


def test_copies_between_cores() -> None:
    x = torch.randn(5, 4, device="neuron:0")
    for source in (x, x.t(), x[::2], x.to(torch.bfloat16), x > 0):
        for non_blocking in (False, True):
            there = source.to("neuron:3", non_blocking=non_blocking)
            assert there.device.index == 3
            assert torch.equal(there.cpu(), source.cpu())
    target = torch.zeros(4, 5, device="neuron:2", dtype=torch.float16)
    target.copy_(x.t())
    assert torch.equal(target.cpu(), x.t().cpu().half())
