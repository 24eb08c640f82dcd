"""The name: PrivateUse1 is `neuron`, once and for all."""

import copy
import pickle

import pytest
import torch


@pytest.mark.parametrize(
    ("spelling", "index"), [(("neuron",), None), (("neuron:0",), 0), (("neuron:3",), 3), (("neuron", 2), 2)]
)
def test_a_device_is_named(spelling: tuple[str] | tuple[str, int], index: int | None) -> None:
    device = torch.device(*spelling)
    assert device.type == "neuron"
    assert device.index == index


@pytest.mark.parametrize("spelling", ["neuron", "neuron:1"])
def test_a_name_survives_printing_copies_and_pickles(spelling: str) -> None:
    device = torch.device(spelling)
    assert str(device) == spelling
    assert torch.device(str(device)) == device
    assert copy.deepcopy(device) == device
    assert pickle.loads(pickle.dumps(device)) == device
    assert len({device, torch.device(spelling)}) == 1


@pytest.mark.parametrize("spelling", ["neuron:", "neuron:x", "neuron:-1", "neurons", "neuron:1:2"])
def test_a_misspelt_name_is_refused(spelling: str) -> None:
    with pytest.raises(RuntimeError):
        torch.device(spelling)


def test_the_same_name_again_changes_nothing() -> None:
    torch.utils.rename_privateuse1_backend("neuron")
    assert torch._C._get_privateuse1_backend_name() == "neuron"


def test_another_name_is_refused() -> None:
    with pytest.raises(RuntimeError, match="neuron"):
        torch.utils.rename_privateuse1_backend("electron")
    assert torch.device("neuron").type == "neuron"


def test_a_tensor_says_where_it_is() -> None:
    tensor = torch.empty(1, device="neuron")
    assert tensor.device == torch.device("neuron:0")
    assert tensor.type() == "torch.neuron.FloatTensor"
    assert torch.empty(1, device="neuron:2").get_device() == 2
    assert torch.empty_like(tensor).device == tensor.device
    assert torch.empty(1).to(tensor).device == tensor.device
