"""The methods that carry the device's name, on tensors, modules, storages and packed sequences."""

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence


def test_tensors() -> None:
    x = torch.arange(3.0)
    assert not x.is_neuron
    assert x.neuron().is_neuron
    assert x.neuron(1).device.index == 1
    assert x.neuron(torch.device("neuron:2")).device.index == 2
    assert x.neuron(non_blocking=True).tolist() == x.tolist()
    y = x.requires_grad_().neuron()
    y.sum().backward()
    assert x.grad is not None
    assert torch.nn.Parameter(torch.ones(1)).neuron().is_neuron


def test_modules() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    assert net.neuron() is net
    assert all(tensor.is_neuron for tensor in net.state_dict().values())
    assert all(tensor.device.index == 3 for tensor in net.neuron(3).state_dict().values())


def test_storages() -> None:
    storage = torch.arange(3, dtype=torch.uint8).untyped_storage()
    assert not storage.is_neuron
    assert storage.neuron().is_neuron
    assert storage.neuron().device == torch.device("neuron:0")
    assert storage.neuron().neuron(1).device.index == 1
    assert storage.neuron().tolist() == [0, 1, 2]
    assert storage.neuron().cpu().device.type == "cpu"


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated:UserWarning")
def test_typed_storages() -> None:
    storage = torch.arange(3.0).storage()
    assert storage.neuron().is_neuron
    assert storage.neuron().tolist() == [0.0, 1.0, 2.0]


def test_packed_sequences() -> None:
    packed = pack_sequence([torch.ones(3, 2), torch.ones(2, 2)])
    assert not packed.is_neuron
    moved = packed.neuron()
    assert moved.is_neuron
    assert moved.data.is_neuron
    assert moved.batch_sizes.device.type == "cpu"
    out, _ = torch.nn.RNN(2, 4).neuron()(moved)
    assert out.data.is_neuron


def test_types() -> None:
    x = torch.ones(2)
    assert x.type("torch.neuron.HalfTensor").dtype == torch.float16
    assert x.type("torch.neuron.HalfTensor").is_neuron
    assert x.neuron().type(torch.int32).type() == "torch.neuron.IntTensor"
    assert x.neuron().type_as(torch.empty(0, dtype=torch.float64)).device.type == "cpu"


def test_generating_them_again_is_torch_s_error_and_not_ours() -> None:
    from torch_neuronx import _compat

    with pytest.raises(RuntimeError):
        torch.utils.generate_methods_for_privateuse1_backend()
    _compat.generate_methods("neuron")
    assert torch.ones(1).neuron().is_neuron
