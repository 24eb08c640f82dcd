"""The hooks, by way of what PyTorch builds on them: `torch.accelerator` works unchanged."""

import gc

import pytest
import torch


def test_the_accelerator_is_found() -> None:
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("neuron")
    assert torch.accelerator.current_accelerator(check_available=True) == torch.device("neuron")
    assert torch.accelerator.device_count() == 4
    assert torch.get_device_module("neuron") is torch.get_device_module() is torch.neuron


def test_the_current_core() -> None:
    assert torch.accelerator.current_device_index() == 0
    torch.accelerator.set_device_index(2)
    try:
        assert torch.accelerator.current_device_index() == torch.neuron.current_device() == 2
    finally:
        torch.accelerator.set_device_index("neuron:0")
    with torch.accelerator.device_index(3):
        assert torch.neuron.current_device() == 3
    assert torch.accelerator.current_device_index() == 0


def test_streams() -> None:
    stream = torch.Stream(device="neuron")
    before = torch.accelerator.current_stream()
    torch.accelerator.set_stream(stream)
    try:
        assert torch.accelerator.current_stream() == torch.neuron.current_stream() == stream
    finally:
        torch.accelerator.set_stream(before)
    torch.accelerator.synchronize()
    torch.accelerator.synchronize("neuron:1")


def test_memory() -> None:
    gc.collect()
    torch.accelerator.empty_cache()
    torch.accelerator.empty_host_cache()
    before = torch.accelerator.memory_allocated()
    tensor = torch.empty(2**20, device="neuron")
    assert torch.accelerator.memory_allocated() - before == torch.neuron.memory_allocated() - before == tensor.nbytes
    assert torch.accelerator.max_memory_allocated() >= torch.accelerator.memory_allocated()
    assert torch.accelerator.memory_reserved() >= torch.accelerator.memory_allocated()
    assert torch.accelerator.max_memory_reserved() >= torch.accelerator.memory_reserved()
    assert torch.accelerator.memory_stats() == torch.neuron.memory_stats()
    free, total = torch.accelerator.get_memory_info()
    assert total == 24 * 2**30
    assert free == total - torch.accelerator.memory_reserved()
    del tensor
    torch.accelerator.reset_peak_memory_stats()
    torch.accelerator.reset_accumulated_memory_stats()
    assert torch.accelerator.max_memory_allocated() == torch.accelerator.memory_allocated() == before


def test_capability() -> None:
    dtypes = torch.accelerator.get_device_capability()["supported_dtypes"]
    assert {torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool} <= dtypes
    assert not {torch.qint8, torch.quint8, torch.qint32} & dtypes


def test_pinned_addresses_are_known() -> None:
    assert torch.ones(1, pin_memory=True).is_pinned()
    assert not torch.ones(1).is_pinned()


def test_storages_resize() -> None:
    storage = torch.arange(4.0, device="neuron").untyped_storage()
    storage.resize_(0)
    assert storage.nbytes() == 0
    assert storage.size() == 0
    storage.resize_(1 << 21)
    assert storage.nbytes() == 1 << 21
    kept = torch.arange(4.0, device="neuron")
    kept.untyped_storage().resize_(64)
    assert kept.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_a_program_written_for_any_accelerator() -> None:
    device = torch.accelerator.current_accelerator()
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x, y = torch.randn(64, 4, device=device), torch.ones(64, 1, device=device)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = torch.nn.functional.mse_loss(model(x).float(), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    torch.accelerator.synchronize()
    assert losses[-1] < losses[0]


def test_generators_come_through_the_hooks() -> None:
    assert torch.Generator(device="neuron:1").device == torch.device("neuron:1")
    assert torch.neuron.default_generators[2].device == torch.device("neuron:2")
    with pytest.raises(IndexError):
        torch.neuron.default_generators[4]
