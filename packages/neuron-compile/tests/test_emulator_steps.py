"""Small programs, which the emulator runs as calls of ATen: what is one, and that nothing else shows."""

import pytest
import torch
from jaxlib.mlir import ir
from torch import Tensor

from torch_neuronx import plugins
from torch_neuronx.compilers import CompileRequest
from torch_neuronx.runtimes.interface import Executable
from torch_neuronx.runtimes.select import select_runtime
from torch_neuronx_compile import _C
from torch_neuronx_compile.compilers.emulator.steps import MOST, Steps, steps_of
from torch_neuronx_compile.worker.canonical import new_context, portable

from .helpers import check, compiled


def _steps(body: str) -> Steps | None:
    with new_context(), ir.Location.unknown():
        return steps_of(ir.Module.parse(f"module {{ {body} }}"))


def _load(body: str) -> Executable:
    request = CompileRequest(portable(f"module {{ {body} }}"), "small", "trn2", 2, {})
    return select_runtime().load(plugins.manager().compilers()["emulator"].compile(request), 0)


def _unary(operation: str, before: str = "8xf32", after: str = "8xf32") -> str:
    return f"""
        func.func @main(%x: tensor<{before}>) -> tensor<{after}> {{
          %0 = stablehlo.{operation} : (tensor<{before}>) -> tensor<{after}>
          return %0 : tensor<{after}>
        }}"""


def test_elementwise_operations_are_steps_and_scalars_stay_scalars() -> None:
    steps = _steps("""
        func.func @main(%x: tensor<8x8xf32>, %y: tensor<8x8xf32>) -> tensor<8x8xf32> {
          %one = stablehlo.constant dense<1.0> : tensor<f32>
          %0 = stablehlo.multiply %x, %y : tensor<8x8xf32>
          %1 = stablehlo.broadcast_in_dim %one, dims = [] : (tensor<f32>) -> tensor<8x8xf32>
          %2 = stablehlo.add %0, %1 : tensor<8x8xf32>
          return %2 : tensor<8x8xf32>
        }""")
    assert steps == {
        "constants": [("float32", 1.0)],
        "steps": [("mul", [0, 1], []), ("add", [3, 2], [])],
        "results": [4],
    }


@pytest.mark.parametrize(
    "body",
    [
        _unary("negate %x", "4097xf32", "4097xf32"),
        _unary("convert %x", "8xf32", "8xi32"),
        _unary("reverse %x, dims = [0]"),
        "func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {"
        + "".join(f"%{i + 1} = stablehlo.negate {f'%{i}' if i else '%x'} : tensor<8xf32> " for i in range(MOST + 1))
        + f"return %{MOST + 1} : tensor<8xf32> }}",
    ],
    ids=["large", "floats to integers", "no step", "long"],
)
def test_other_programs_are_xlas(body: str) -> None:
    assert _steps(body) is None


def test_results_are_memory_of_their_own() -> None:
    run = _load("""
        func.func @main(%x: tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<3x2xf32>, tensor<2x3xf32>, tensor<2x3xf32>) {
          %one = stablehlo.constant dense<1.0> : tensor<2x3xf32>
          %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>
          %1 = stablehlo.add %0, %0 : tensor<3x2xf32>
          return %x, %1, %one, %one : tensor<2x3xf32>, tensor<3x2xf32>, tensor<2x3xf32>, tensor<2x3xf32>
        }""")
    x = torch.arange(6.0).view(2, 3).to("neuron")
    results = run([x])
    assert len({result.untyped_storage().data_ptr() for result in [x, *results]}) == 5
    assert all(result.is_contiguous() and result.device == x.device for result in results)
    expected = [x, (x + x).t(), torch.ones(2, 3), torch.ones(2, 3)]
    for result, right in zip(results, expected, strict=True):
        assert torch.equal(result.cpu(), right.cpu())


def test_views_of_inputs_are_read_where_they_lie() -> None:
    run = compiled(lambda x: x * 2 + 1)
    whole = torch.arange(64.0, device="neuron").view(8, 8)
    assert torch.equal(run(whole.t()).cpu(), whole.cpu().t() * 2 + 1)
    assert torch.equal(run(whole[1:, ::2]).cpu(), whole.cpu()[1:, ::2] * 2 + 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_results_are_those_of_eager_mode_to_the_last_bit(dtype: torch.dtype) -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return (x * y + 1).relu(), torch.where(x > y, x.exp(), y.tanh()), (x.sum(-1, keepdim=True) - y).abs()

    x, y = torch.randn(2, 16, 16).to(dtype).to("neuron")
    for one, other in zip(compiled(function)(x, y), function(x, y), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_special_values_and_integers() -> None:
    special = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 2.5, -2.5])
    numbers = torch.tensor([0, 1, -1, 127, -128, 5], dtype=torch.int8)

    def floats(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return x.round(), x.relu(), x.clamp(-1, 1), x != x, x / y, torch.maximum(x, y)

    actual = compiled(floats)(special.to("neuron"), special.flip(0).to("neuron"))
    for one, other in zip(actual, floats(special, special.flip(0)), strict=True):
        torch.testing.assert_close(one.cpu(), other, rtol=0, atol=0, equal_nan=True)
    check(lambda x: (x + x, ~x, x & 3, x.to(torch.float32), x.to(torch.bool), x > 0), numbers)


def test_gradients_of_small_graphs() -> None:
    check(lambda x, y: (x * y).sigmoid().sum(0), torch.randn(4, 4), torch.randn(4, 4), grad=True)


def test_what_is_no_program_is_an_error() -> None:
    for steps, message in (
        ([("mul", [0], [])], "no step 'mul' with 1 operands"),
        ([("guess", [0], [])], "no step 'guess'"),
        ([("neg", [1], [])], "value 1, which is not there yet"),
    ):
        with pytest.raises(ValueError, match=message):
            _C.Steps(1, [], steps, [0], 0)


SPECIAL = torch.tensor([0.0, 1.0, -1.0, 2.5, float("inf"), -float("inf"), float("nan"), 1e-40, 3.4e38])


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "maximum", "minimum"])
@pytest.mark.parametrize(("operands", "number"), [([0, 1], 1.0), ([0, 2], -1.0), ([2, 0], 2.5), ([0, 2], float("nan"))])
def test_loops_give_what_aten_gives(name: str, operands: list[int], number: float) -> None:
    values = [SPECIAL.repeat_interleave(len(SPECIAL)), SPECIAL.repeat(len(SPECIAL)), torch.tensor(number)]
    program = _C.Steps(2, [values[2]], [(name, operands, [])], [3], 0)
    (result,) = program([value.to("neuron") for value in values[:2]])
    assert result.device.type == "neuron"
    expected = getattr(torch, name)(*(values[operand] for operand in operands))
    torch.testing.assert_close(result.cpu(), expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("shape", [(), (0, 3), (4, 5), (64, 64)])
def test_loops_hand_every_result_on(shape: tuple[int, ...]) -> None:
    x, y = torch.randn(shape), torch.randn(shape)
    steps = [("mul", [0, 1], []), ("add", [3, 2], []), ("sub", [4, 3], [])]
    results = _C.Steps(2, [torch.tensor(0.5)], steps, [5, 3], 0)([x.to("neuron"), y.to("neuron")])
    for result, expected in zip(results, ((x * y + 0.5) - x * y, x * y), strict=True):
        assert torch.equal(result.cpu(), expected)


@pytest.mark.parametrize(
    "inputs",
    [
        (torch.randn(4, 5), torch.randn(5)),
        (torch.randn(4, 5), torch.randn(5, 4).t()),
        (torch.randn(4, 5).bfloat16(), torch.randn(4, 5).bfloat16()),
        (torch.arange(20).view(4, 5), torch.arange(20).view(4, 5)),
    ],
)
def test_what_is_no_loop_goes_to_aten(inputs: tuple[Tensor, Tensor]) -> None:
    (result,) = _C.Steps(2, [], [("add", [0, 1], [])], [2], 0)([tensor.to("neuron") for tensor in inputs])
    expected = inputs[0] + inputs[1]
    assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
    assert torch.equal(result.cpu(), expected)
