"""`torch.neuron` answers as `torch.cuda` does. What is tested elsewhere by its contract is not repeated here."""

import inspect
from typing import Any

import pytest
import torch

import torch_neuronx
from torch_neuronx.errors import DeviceError


def test_asking_opens_nothing(fresh: Any) -> None:
    code = """
    import json, torch
    n = torch.neuron
    answers = [n.is_available(), n.device_count(), n.is_initialized(), n._initialized, n._is_in_bad_fork(),
               n.get_device_name(), n.get_device_properties(1).name, list(n.get_device_capability()),
               n.is_bf16_supported(), n.memory_allocated(), n.memory_reserved(), n.max_memory_allocated(),
               n.mem_get_info()[0] == n.mem_get_info()[1], n.initial_seed() == n.default_generators[0].initial_seed(),
               n.get_rng_state().numel(), len(n.get_rng_state_all()), n.empty_cache(), n.reset_peak_memory_stats(),
               torch.accelerator.is_available(), torch.accelerator.device_count(), n.manual_seed_all(3),
               str(n.memory_stats(0))]
    answers.append(n.is_initialized())
    n.init()
    answers += [n.is_initialized(), n._initialized]
    print(json.dumps(answers))
    """
    answers = fresh(code).answer
    assert answers[:5] == [True, 4, False, False, False]
    assert answers[5:9] == ["trn2", "trn2", [3, 0], True]
    assert answers[9:18] == [0, 0, 0, True, True, 16, 4, None, None]
    assert answers[-3:] == [False, True, True]


def test_properties() -> None:
    properties = torch.neuron.get_device_properties("neuron:1")
    assert properties.name == torch.neuron.get_device_name(1) == "trn2"
    assert properties.total_memory == 24 * 2**30
    assert properties.logical_core == 1
    assert properties.physical_cores == (2, 3)
    assert properties.multi_processor_count == properties.lnc == 2
    assert properties.partitions == 128
    assert isinstance(properties, torch.neuron.NeuronDeviceProperties)
    assert torch.neuron.get_device_properties() == torch.neuron.get_device_properties(torch.neuron.current_device())


def test_current_device_is_a_target_for_to() -> None:
    with torch.neuron.device(2):
        assert torch.ones(1).to(torch.neuron.current_device()).device == torch.device("neuron:2")


@pytest.mark.parametrize("name", ["memory", "random", "amp"])
def test_submodules(name: str) -> None:
    module = getattr(torch.neuron, name)
    assert inspect.ismodule(module)
    public = {"memory": "memory_stats", "random": "manual_seed", "amp": "autocast"}[name]
    assert callable(getattr(module, public))


def test_what_is_not_there_says_so() -> None:
    with pytest.raises(AttributeError, match=r"torch\.neuron.*no_such_thing"):
        torch.neuron.no_such_thing  # noqa: B018
    assert not hasattr(torch.neuron, "graph_pool_handle")
    with pytest.raises(AttributeError, match="no_such_thing"):
        torch_neuronx.no_such_thing  # noqa: B018


def test_the_package_has_the_same_functions() -> None:
    for name in ("synchronize", "current_device", "current_stream", "Stream", "Event", "stream", "memory_stats"):
        assert getattr(torch_neuronx, name) is getattr(torch.neuron, name)
    stream = torch_neuronx.Stream("neuron:1")
    with torch_neuronx.stream(stream):
        assert torch_neuronx.current_stream() == stream
    torch_neuronx.synchronize()
    assert torch_neuronx.memory_allocated() == torch.neuron.memory_allocated()
    assert set(torch_neuronx.__all__) <= set(dir(torch_neuronx))


def test_downstream_idioms() -> None:
    import importlib.util

    assert importlib.util.find_spec("torch_neuronx") is not None
    assert hasattr(torch, "neuron")
    assert torch.neuron.is_available()
    torch.neuron.set_device(5 % torch.neuron.device_count())  # accelerate: local index modulo count
    assert torch.neuron.current_device() == 1
    torch.neuron.set_device(0)
    states = torch.neuron.get_rng_state_all()
    torch.neuron.set_rng_state_all(states)
    assert torch._utils._get_device_module("neuron") is torch.neuron
    assert torch.utils.backend_registration._get_custom_mod_func("current_device")() == 0


def test_errors_are_typed() -> None:
    with pytest.raises(DeviceError) as caught:
        torch.ones(1, device="neuron:64")
    assert caught.value.code == "device"
    assert isinstance(caught.value, RuntimeError)
