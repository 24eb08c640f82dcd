"""How the emulator's programs read and write device memory, call after call."""

import gc

import pytest
import torch
from torch import Tensor

from torch_neuronx import plugins
from torch_neuronx.compilers import CompileRequest
from torch_neuronx.runtimes.interface import Executable
from torch_neuronx.runtimes.select import select_runtime
from torch_neuronx_compile.worker.canonical import portable

from .helpers import compiled


def _block(x: Tensor, w: Tensor) -> Tensor:
    return ((x @ w).softmax(-1) * 2).relu()


def _double() -> Executable:
    program = portable(
        "module { func.func @main(%x: tensor<64xf32>) -> tensor<64xf32> {"
        "%0 = stablehlo.add %x, %x : tensor<64xf32> "
        "%1 = stablehlo.reverse %0, dims = [0] : tensor<64xf32> "  # leaves the program to XLA
        "return %1 : tensor<64xf32> } }"
    )
    compiler = plugins.manager().compilers()["emulator"]
    request = CompileRequest(program=program, graph="double", target="trn2", lnc=2, options={})
    return select_runtime().load(compiler.compile(request), 0)


def test_many_calls_and_some_recompilations_leave_the_memory_as_it_was() -> None:
    x, w = torch.randn(64, 64, device="neuron"), torch.randn(64, 64, device="neuron")
    for _ in range(3):
        torch._dynamo.reset()
        function = compiled(_block)
        function(x, w)
        gc.collect()
        before = torch.accelerator.memory_allocated()
        for _ in range(200):
            function(x + 1, w)
        gc.collect()
        assert torch.accelerator.memory_allocated() == before


def test_what_is_written_between_calls_is_read() -> None:
    run = _double()
    whole = torch.zeros(96, device="neuron")
    views = [whole[:64], whole[1:65], whole[32:], whole[:64].view(8, 8).t().reshape(8, 8).t().contiguous().view(64)]
    for number in range(20):
        for view in views:
            view.fill_(number)
            assert torch.equal(run([view])[0], torch.full((64,), 2.0 * number, device="neuron"))


def test_more_addresses_than_are_remembered_give_their_own_values() -> None:
    run = _double()
    inputs = [torch.full((64,), float(number), device="neuron") for number in range(40)]
    for _ in range(2):
        for number, tensor in enumerate(inputs):
            assert run([tensor])[0][0].item() == 2 * number


def test_a_wrong_number_of_inputs_is_an_error() -> None:
    run = _double()
    x = torch.ones(64, device="neuron")
    for inputs in ([], [x, x]):
        with pytest.raises(ValueError, match=f"takes 1 inputs and got {len(inputs)}"):
            run(inputs)
