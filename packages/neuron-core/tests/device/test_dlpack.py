"""DLPack to and from the CPU, without a copy where that can be."""

import gc
from typing import Any

import numpy as np
import pytest
import torch

import torch_neuronx
from torch_neuronx import config

pytestmark = pytest.mark.skipif(
    config.get(config.EMULATOR_PROTECT),
    reason="protected memory cannot be shared; the run without protection tests sharing, and that it is refused here",
)


def test_a_tensor_is_read_and_written_by_numpy_without_a_copy() -> None:
    tensor = torch.arange(12.0, device="neuron").reshape(3, 4)
    for source in (tensor, tensor.t(), tensor[1:, ::2]):
        array = np.from_dlpack(torch_neuronx.to_dlpack(source))
        assert array.tolist() == source.tolist()
        assert array.ctypes.data == source.data_ptr()
    np.from_dlpack(torch_neuronx.to_dlpack(tensor))[0, 0] = 100
    assert tensor[0, 0].item() == 100
    tensor.zero_()
    assert not array.any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool])
def test_dtypes(dtype: torch.dtype) -> None:
    tensor = torch.ones(5, device="neuron").to(dtype)
    host = torch.from_dlpack(torch_neuronx.to_dlpack(tensor))
    assert host.dtype == dtype
    assert host.data_ptr() == tensor.data_ptr()
    back = torch_neuronx.from_dlpack(host)
    assert back.dtype == dtype
    assert back.is_neuron
    assert torch.equal(back, tensor)


def test_an_array_becomes_a_tensor_without_a_copy() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    tensor = torch_neuronx.from_dlpack(array.T, device="neuron:1")
    assert tensor.device == torch.device("neuron:1")
    assert tensor.data_ptr() == array.ctypes.data
    assert tensor.stride() == (1, 3)
    assert torch.equal((tensor + 1).cpu(), torch.from_numpy(array.T) + 1)
    array[0, 0] = 50
    assert tensor[0, 0].item() == 50
    tensor.mul_(2)
    assert array[0, 0] == 100


def test_memory_counts_and_lives_as_long_as_it_is_used() -> None:
    before = torch.neuron.memory_allocated("neuron:1")
    tensor = torch_neuronx.from_dlpack(np.ones(5000, dtype=np.float32), "neuron:1")
    assert torch.neuron.memory_allocated("neuron:1") == before + 20_000
    assert tensor.sum().item() == 5000
    del tensor
    assert torch.neuron.memory_allocated("neuron:1") == before
    host = torch_neuronx.to_dlpack(torch.arange(1000.0, device="neuron:1"))
    gc.collect()
    torch.neuron.empty_cache()
    other = torch.zeros(1000, device="neuron:1")
    assert torch.equal(host, torch.arange(1000.0))
    assert other.is_neuron


def test_gradients_flow_on_from_shared_memory() -> None:
    weight = torch_neuronx.from_dlpack(np.ones(3, dtype=np.float32)).requires_grad_()
    (weight * 2).sum().backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [2.0, 2.0, 2.0]


def test_capsules_stay_on_the_device() -> None:
    tensor = torch.ones(3, device="neuron:2")
    same = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(tensor))
    assert same.device == tensor.device
    assert same.data_ptr() == tensor.data_ptr()


def test_doors_of_torch_and_numpy_copy_or_refuse() -> None:
    tensor = torch.arange(3.0, device="neuron")
    copied = np.from_dlpack(tensor, device="cpu")
    assert copied.tolist() == [0.0, 1.0, 2.0]
    assert copied.ctypes.data != tensor.data_ptr()
    assert torch.from_dlpack(torch.arange(3.0), device="neuron").is_neuron
    # COMPAT(torch 2.13): Tensor.__dlpack_device__ compares with the name "privateuse1", which a rename changes. Where
    # this stops raising, torch_neuronx.to_dlpack may no longer be needed.
    with pytest.raises(ValueError, match="Unknown device type neuron for Dlpack"):
        torch.from_dlpack(tensor)
    with pytest.raises(ValueError, match="without copying"):
        torch.from_dlpack(torch.arange(3.0), device="neuron", copy=False)
    with pytest.raises(RuntimeError, match="Unsupported device"):
        np.from_dlpack(tensor)


def test_wrong_uses() -> None:
    with pytest.raises(ValueError, match="Expected a tensor on device neuron, but it is on cpu"):
        torch_neuronx.to_dlpack(torch.ones(1))
    with pytest.raises(BufferError, match=r"tensor\.detach\(\)"):
        torch_neuronx.to_dlpack(torch.ones(1, device="neuron", requires_grad=True))
    with pytest.raises(ValueError, match="Expected a neuron device"):
        torch_neuronx.from_dlpack(torch.ones(1), device="cpu")
    with pytest.raises(ValueError, match="Expected CPU memory, but the source is on neuron:0"):
        torch_neuronx.from_dlpack(torch.utils.dlpack.to_dlpack(torch.ones(1, device="neuron")))


def test_protected_mode_refuses(fresh: Any) -> None:
    code = """
    import torch, torch_neuronx
    for share in (lambda: torch_neuronx.to_dlpack(torch.ones(1, device="neuron")),
                  lambda: torch_neuronx.from_dlpack(torch.ones(1))):
        try:
            share()
        except torch_neuronx.errors.ConfigurationError as error:
            print(error)
    """
    done = fresh(code, TORCH_NEURONX_EMULATOR_PROTECT="1")
    assert done.status == 0, done.err
    assert done.out.count("TORCH_NEURONX_EMULATOR_PROTECT is on, so device memory cannot be shared with the CPU") == 2
    assert "tensor.cpu()" in done.out
