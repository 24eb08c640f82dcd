"""`torch.neuron` in compiled functions: what never changes is part of a graph, what asks or sets state breaks it."""

import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch._dynamo.exc import Unsupported

device = torch.neuron  # type: ignore[attr-defined]


def test_what_never_changes_is_part_of_the_graph() -> None:
    def call(x: Tensor) -> Tensor:
        if device.is_available() and device.is_bf16_supported() and device.get_device_name().startswith("trn"):
            x = x + device.get_device_capability()[0]
        return x * device.device_count()

    x = torch.ones(2, device="neuron")
    assert torch.equal(torch.compile(call, backend="neuron", fullgraph=True)(x).cpu(), call(x).cpu())


def state(x: Tensor) -> Tensor:
    saved = device.get_rng_state()
    device.manual_seed(3)
    seeded = device.initial_seed()
    device.set_rng_state(saved)
    return x + seeded


def statistics(x: Tensor) -> Tensor:
    device.reset_peak_memory_stats()
    y = x * 2
    device.empty_cache()
    return y + (device.max_memory_allocated() >= device.memory_allocated() > 0) + device.mem_get_info()[1]


def cores(x: Tensor) -> Tensor:
    device.set_device(device.current_device())
    with device.device(0):
        y = x * 2
    return y + device.get_device_properties(0).partitions


def streams(x: Tensor) -> Tensor:
    side = device.Stream()
    with device.stream(side):
        y = x * 2
    device.current_stream().wait_stream(side)
    mark = device.Event()
    mark.record(device.default_stream())
    mark.synchronize()
    return y + 1


@pytest.mark.parametrize("call", [state, statistics, cores, streams])
def test_what_asks_or_sets_state_runs_between_graphs(call: Callable[[Tensor], Tensor]) -> None:
    x = torch.ones(2, device="neuron")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Dynamo warns of functions that it cannot see into
        result = torch.compile(call, backend="neuron")(x)
    assert torch.equal(result.cpu(), call(x).cpu())
    ours = str(Path(device.__file__).parent)
    seen = [code() for code in torch._dynamo.convert_frame.input_codes.seen]
    assert not [code.co_qualname for code in seen if code is not None and code.co_filename.startswith(ours)]


def test_with_fullgraph_the_reason_is_given() -> None:
    def call(x: Tensor) -> Tensor:
        device.empty_cache()
        return x + 1

    with pytest.raises(Unsupported, match=r"empty_cache.*it asks for the state of the device or changes it"):
        torch.compile(call, backend="neuron", fullgraph=True)(torch.ones(2, device="neuron"))
