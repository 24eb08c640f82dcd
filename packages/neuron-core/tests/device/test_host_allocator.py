"""Pinned host memory, and the data loaders that use it."""

import multiprocessing

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")


def test_pinning_copies_and_marks() -> None:
    tensor = torch.arange(1000.0)
    pinned = tensor.pin_memory()
    assert not tensor.is_pinned()
    assert pinned.is_pinned()
    assert pinned.device.type == "cpu"
    assert torch.equal(pinned, tensor)
    assert pinned.pin_memory() is pinned or pinned.pin_memory().data_ptr() == pinned.data_ptr()


def test_pinned_factories() -> None:
    for pinned in (torch.empty(5, pin_memory=True), torch.ones(2, 3, pin_memory=True), torch.zeros(0, pin_memory=True)):
        assert pinned.is_pinned() or pinned.numel() == 0
    assert torch.empty(8, pin_memory=True)[3:].is_pinned(), "a view of pinned memory is pinned"
    assert torch.empty(3, pin_memory=True).data_ptr() % 64 == 0


def test_storages_are_pinned() -> None:
    storage = torch.arange(4, dtype=torch.uint8).untyped_storage()
    assert not storage.is_pinned()
    assert storage.pin_memory().is_pinned()


@pytest.mark.parametrize("non_blocking", [False, True])
def test_pinned_tensors_travel_both_ways(non_blocking: bool) -> None:
    pinned = torch.randn(33, 7).pin_memory()
    there = pinned.to("neuron", non_blocking=non_blocking)
    back = torch.empty(33, 7, pin_memory=True)
    back.copy_(there, non_blocking=non_blocking)
    torch.neuron.synchronize()
    assert torch.equal(back, pinned)


def test_device_memory_cannot_be_pinned() -> None:
    with pytest.raises(RuntimeError, match="pin"):
        torch.ones(1, device="neuron").pin_memory()
    with pytest.raises(RuntimeError, match=r"Only CPU memory can be pinned.*Drop pin_memory=True"):
        torch.ones(1, device="neuron", pin_memory=True)
    assert not torch.ones(1, device="neuron").is_pinned()


def test_memory_that_is_given_back_is_not_pinned_any_more() -> None:
    for _ in range(50):
        assert torch.empty(100_000, pin_memory=True).is_pinned()
    assert not torch.empty(100_000).is_pinned()


def batches(loader: DataLoader[tuple[torch.Tensor, ...]]) -> list[torch.Tensor]:
    return [batch for (batch,) in loader]


DATA = TensorDataset(torch.arange(60.0).reshape(20, 3))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_pins_its_batches(workers: int) -> None:
    torch.ones(1, device="neuron")  # the device is open before workers fork
    loader = DataLoader(DATA, batch_size=5, pin_memory=True, num_workers=workers)
    found = batches(loader)
    assert all(batch.is_pinned() for batch in found)
    moved = [batch.to("neuron", non_blocking=True) for batch in found]
    assert torch.equal(torch.cat(moved).cpu(), DATA.tensors[0])


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_loader_with_other_start_methods(method: str) -> None:
    context = multiprocessing.get_context(method)
    loader = DataLoader(DATA, batch_size=10, pin_memory=True, num_workers=1, multiprocessing_context=context)
    found = batches(loader)
    assert all(batch.is_pinned() for batch in found)
    assert torch.equal(torch.cat(found).to("neuron").cpu(), DATA.tensors[0])
