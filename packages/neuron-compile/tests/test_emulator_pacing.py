"""What a program computes from its inputs alone waits for its turn: same numbers, less memory."""

import pytest
import torch
from jaxlib.mlir import ir

from torch_neuronx import plugins
from torch_neuronx.compilers import CompileRequest
from torch_neuronx.runtimes.interface import Executable
from torch_neuronx.runtimes.select import select_runtime
from torch_neuronx_compile.compilers.emulator.executable import XlaExecutable
from torch_neuronx_compile.compilers.emulator.rewrite.pipeline import rewrite
from torch_neuronx_compile.worker.canonical import new_context, portable, walk

SQUARE = "tensor<512x512xf32>"
PRODUCT = f"contracting_dims = [1] x [0] : ({SQUARE}, {SQUARE}) -> {SQUARE}"


def _load(body: str) -> Executable:
    request = CompileRequest(portable(f"module {{ {body} }}"), "paced", "trn2", 2, {})
    return select_runtime().load(plugins.manager().compilers()["emulator"].compile(request), 0)


def _calls(body: str) -> list[tuple[str, int]]:
    """Return target and number of operands of every call."""
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(f"module {{ {body} }}")
        rewrite(module)
        assert module.operation.verify()
        return [
            (ir.StringAttr(found.attributes["call_target_name"]).value, len(found.operands))
            for found in walk(module)
            if found.name == "stablehlo.custom_call"
        ]


def _recomputing(layers: int) -> str:
    """Return a backward pass: each layer's probabilities are computed from inputs, then multiplied by its gradient."""
    inputs = ", ".join(f"%q{i}: {SQUARE}, %k{i}: {SQUARE}" for i in range(layers))
    lines = [
        f"""%s{i} = stablehlo.dot_general %q{i}, %k{i}, {PRODUCT}
            %p{i} = stablehlo.exponential %s{i} : {SQUARE}
            %t{i} = stablehlo.tanh %q{i} : {SQUARE}
            %m{i} = stablehlo.dot_general %t{i}, %p{i}, {PRODUCT}
            %g{i + 1} = stablehlo.dot_general %g{i}, %m{i}, {PRODUCT}"""
        for i in range(layers)
    ]
    body = "\n".join(lines)
    return f"func.func @main(%g0: {SQUARE}, {inputs}) -> {SQUARE} {{ {body} return %g{layers} : {SQUARE} }}"


def test_recomputation_holds_the_memory_of_one_layer() -> None:
    short, long = _load(_recomputing(2)), _load(_recomputing(8))
    assert isinstance(short, XlaExecutable)
    assert isinstance(long, XlaExecutable)
    assert long.temporary_bytes <= short.temporary_bytes + 2 * 2**20  # two tensors; six layers have 18


def test_a_call_that_waits_takes_one_operand_more_and_other_operations_a_zero() -> None:
    assert _calls(_recomputing(2)) == [
        ("neuron_contract", 2),
        ("neuron_wait", 1),
        ("neuron_contract", 2),
        ("neuron_contract", 2),
        ("neuron_contract", 3),
        ("neuron_wait", 1),
        ("neuron_contract", 2),
        ("neuron_contract", 2),
    ]


def test_numbers_and_integers_do_not_wait() -> None:
    found = _calls("""
        func.func @main(%a: tensor<64x64xf32>, %n: tensor<f32>, %i: tensor<512x512xi32>)
            -> (tensor<64x64xf32>, tensor<512x512xi32>) {
          %0 = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0]
            : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
          %t = stablehlo.tanh %n : tensor<f32>
          %1 = stablehlo.broadcast_in_dim %t, dims = [] : (tensor<f32>) -> tensor<64x64xf32>
          %2 = stablehlo.dot_general %1, %a, contracting_dims = [1] x [0]
            : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
          %3 = stablehlo.add %0, %2 : tensor<64x64xf32>
          %4 = stablehlo.negate %i : tensor<512x512xi32>
          return %3, %4 : tensor<64x64xf32>, tensor<512x512xi32>
        }""")
    assert found == [("neuron_contract", 2), ("neuron_contract", 3)]  # the call itself waits


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_what_waits_keeps_every_bit(dtype: torch.dtype) -> None:
    name = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}[dtype]
    square = f"tensor<512x512x{name}>"
    run = _load(f"""
        func.func @main(%a: {square}, %x: {square}) -> ({square}, {square}) {{
          %0 = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0] : ({square}, {square}) -> {square}
          %1 = stablehlo.transpose %x, dims = [1, 0] : ({square}) -> {square}
          return %0, %1 : {square}, {square}
        }}""")
    smallest, largest = torch.finfo(dtype).smallest_normal / 4, torch.finfo(dtype).max
    special = [0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1.0, -1.0, smallest, -smallest, largest, -largest]
    x = torch.tensor(special, dtype=dtype).repeat(512 * 512 // len(special) + 1)[: 512 * 512].view(512, 512)
    _, turned = run([torch.ones(512, 512, dtype=dtype, device="neuron"), x.to("neuron")])
    bits = torch.int32 if dtype.itemsize == 4 else torch.int16
    same = turned.cpu().view(bits) == x.t().contiguous().view(bits)
    assert (same | x.t().isnan()).all()
    assert torch.equal(turned.cpu().isnan(), x.t().isnan())
