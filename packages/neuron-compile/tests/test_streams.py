"""Streams, events and `synchronize` in compiled functions: each call breaks the graph and runs between two NEFFs."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._dynamo.exc import Unsupported

from torch_neuronx.neuron_dynamo_backend.metrics import get_dynamo_metrics


def synchronized(x: Tensor) -> Tensor:
    torch.accelerator.synchronize()
    y = x * 2
    torch.accelerator.synchronize("neuron:0")
    return y + 1


def synchronized_by_the_device_module(x: Tensor) -> Tensor:
    y = x * 2
    torch.neuron.synchronize()  # type: ignore[attr-defined]
    return y + 1


def timed(x: Tensor) -> Tensor:
    start, end = (torch.Event(device="neuron", enable_timing=True) for _ in range(2))
    start.record()
    y = x * 2
    end.record()
    end.synchronize()
    return y + (start.elapsed_time(end) >= 0)


def on_another_stream(x: Tensor) -> Tensor:
    side, current = torch.Stream("neuron"), torch.accelerator.current_stream()
    side.wait_stream(current)
    with side:
        y = x * 2
    current.wait_stream(side)
    y.record_stream(current)
    return y + 1


CALLS = [synchronized, synchronized_by_the_device_module, timed, on_another_stream]


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # what a later graph is given
@pytest.mark.parametrize("backend", ["neuron", None])
@pytest.mark.parametrize("call", CALLS)
def test_the_result_is_that_of_eager_mode(call: Callable[[Tensor], Tensor], backend: str | None) -> None:
    x = torch.randn(4, 4, generator=torch.Generator().manual_seed(0)).to("neuron").requires_grad_()
    options = {} if backend is None else {"backend": backend}
    torch.compile(call, **options)(x).sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad.cpu(), torch.full((4, 4), 2.0))
    assert torch.equal(torch.compile(call, **options)(x).cpu(), call(x).cpu())
    assert get_dynamo_metrics(), "what stands before or after the call is compiled"


def test_with_fullgraph_the_call_is_named() -> None:
    with pytest.raises(Unsupported, match=r"torch\.accelerator\.synchronize cannot be compiled .*one piece of work"):
        torch.compile(synchronized, backend="neuron", fullgraph=True)(torch.ones(2, device="neuron"))


def test_other_backends_keep_them() -> None:
    torch.compile(synchronized, backend="neuron")(torch.ones(2, device="neuron"))
    result = torch.compile(synchronized, backend="eager", fullgraph=True)(torch.ones(2))
    assert torch.equal(result, torch.full((2,), 3.0))
