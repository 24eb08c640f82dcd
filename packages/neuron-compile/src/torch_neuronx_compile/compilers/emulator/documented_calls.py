"""What the custom calls that neuronx-cc documents compute, in StableHLO. Runs in the worker.

Narrow floats are computed in float32 and rounded once, as ATen's kernels for the CPU do.
"""

import json
import math
from collections.abc import Callable
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import chlo, stablehlo

from torch_neuronx_compile.worker.builders import narrowed, reduced, scaled, spread, widened
from torch_neuronx_compile.worker.comparisons import before, compare
from torch_neuronx_compile.worker.constants import splat


def erf(call: Any) -> list[Any]:
    """Expand ``AwsNeuronErf(x)``."""
    return [chlo.erf(call.operands[0])]


def gelu(call: Any) -> list[Any]:
    """Expand ``AwsNeuronGelu(x)``: x times the normal distribution's integral."""
    (x,) = _wide(call)
    return _narrow(call, stablehlo.multiply(x, _integral(x)))


def gelu_tanh(call: Any) -> list[Any]:
    """Expand ``AwsNeuronGeluApprxTanh(x)``."""
    (x,) = _wide(call)
    cube = stablehlo.multiply(stablehlo.multiply(x, x), x)
    inner = stablehlo.multiply(splat(x.type, math.sqrt(2 / math.pi)), stablehlo.add(x, scaled(cube, 0.044715)))
    half = scaled(x, 0.5)
    return _narrow(call, stablehlo.multiply(half, stablehlo.add(stablehlo.tanh(inner), splat(x.type, 1.0))))


def gelu_backward(call: Any) -> list[Any]:
    """Expand ``AwsNeuronGeluBackward(grad, x)``: the integral plus x times the density."""
    grad, x = _wide(call)
    density = stablehlo.exponential(scaled(stablehlo.multiply(x, x), -0.5))
    density = scaled(density, 1 / math.sqrt(2 * math.pi))
    slope = stablehlo.add(_integral(x), stablehlo.multiply(x, density))
    return _narrow(call, stablehlo.multiply(grad, slope))


def silu(call: Any) -> list[Any]:
    """Expand ``AwsNeuronSilu(x)``: x over 1 + exp(-x)."""
    (x,) = _wide(call)
    return _narrow(call, stablehlo.divide(x, _one_plus_exp(x)))


def silu_backward(call: Any) -> list[Any]:
    """Expand ``AwsNeuronSiluBackward(grad, x)``."""
    grad, x = _wide(call)
    sigmoid = stablehlo.divide(splat(x.type, 1.0), _one_plus_exp(x))
    rest = stablehlo.multiply(x, stablehlo.subtract(splat(x.type, 1.0), sigmoid))
    slope = stablehlo.multiply(sigmoid, stablehlo.add(rest, splat(x.type, 1.0)))
    return _narrow(call, stablehlo.multiply(grad, slope))


def softmax(call: Any) -> list[Any]:
    """Expand ``AwsNeuronSoftmax(x)`` along ``dim``, relative to the greatest."""
    (x,) = _wide(call)
    dim = _numbers(call)["dim"]
    shifted = stablehlo.exponential(stablehlo.subtract(x, _reduced(x, dim, stablehlo.MaxOp, float("-inf"))))
    return _narrow(call, stablehlo.divide(shifted, _reduced(shifted, dim, stablehlo.AddOp, 0.0)))


def softmax_backward(call: Any) -> list[Any]:
    """Expand ``AwsNeuronSoftmaxBackward(grad, softmax)`` along ``dim``."""
    grad, output = _wide(call)
    product = stablehlo.multiply(grad, output)
    total = _reduced(product, _numbers(call)["dim"], stablehlo.AddOp, 0.0)
    return _narrow(call, stablehlo.subtract(product, stablehlo.multiply(output, total)))


def argmax(call: Any) -> list[Any]:
    """Expand ``AwsNeuronArgMax(x)`` along ``dim``: the first of equals, the first NaN before all."""
    return _argument(call, "GT")


def argmin(call: Any) -> list[Any]:
    """Expand ``AwsNeuronArgMin(x)`` along ``dim``: the first of equals, the first NaN before all."""
    return _argument(call, "LT")


def topk(call: Any) -> list[Any]:
    """Expand ``AwsNeuronTopK(x)`` to the values and positions of the ``k`` greatest along the last dimension."""
    x = call.operands[0]
    shape = list(x.type.shape)
    i32 = ir.IntegerType.get_signless(32)
    last = len(shape) - 1
    positions = stablehlo.iota(ir.RankedTensorType.get(shape, i32), last)
    operation = stablehlo.SortOp([x.type, positions.type], [x, positions], dimension=last, is_stable=True)
    scalars = [ir.RankedTensorType.get([], kind) for kind in (x.type.element_type, i32)]
    block = operation.comparator.blocks.append(scalars[0], scalars[0], scalars[1], scalars[1])
    with ir.InsertionPoint(block):
        left, right = block.arguments[:2]
        stablehlo.return_([before(left, right, "GT")])
    limits = [*shape[:-1], _numbers(call)["k"]]
    return [
        stablehlo.slice(
            result,
            ir.DenseI64ArrayAttr.get([0] * len(shape)),
            ir.DenseI64ArrayAttr.get(limits),
            ir.DenseI64ArrayAttr.get([1] * len(shape)),
        )
        for result in operation.results
    ]


EXPANSIONS: dict[str, Callable[[Any], list[Any]]] = {
    "AwsNeuronErf": erf,
    "AwsNeuronGelu": gelu,
    "AwsNeuronGeluApprxTanh": gelu_tanh,
    "AwsNeuronGeluBackward": gelu_backward,
    "AwsNeuronSilu": silu,
    "AwsNeuronSiluBackward": silu_backward,
    "AwsNeuronSoftmax": softmax,
    "AwsNeuronSoftmaxBackward": softmax_backward,
    "AwsNeuronArgMax": argmax,
    "AwsNeuronArgMin": argmin,
    "AwsNeuronTopK": topk,
}
"""Builders by target: they take the call and return its results."""


def _numbers(call: Any) -> dict[str, int]:
    numbers: dict[str, int] = json.loads(ir.StringAttr(call.attributes["backend_config"]).value)
    return numbers


def _wide(call: Any) -> list[Any]:
    """Return the operands, narrow floats as float32."""
    narrow = (ir.BF16Type, ir.F16Type)
    return [
        widened(operand) if isinstance(ir.RankedTensorType(operand.type).element_type, narrow) else operand
        for operand in call.operands
    ]


def _narrow(call: Any, value: Any) -> list[Any]:
    return [narrowed(value, call.results[0].type)]


def _integral(x: Any) -> Any:
    erf = chlo.erf(scaled(x, math.sqrt(0.5)))
    return scaled(stablehlo.add(erf, splat(x.type, 1.0)), 0.5)


def _one_plus_exp(x: Any) -> Any:
    return stablehlo.add(stablehlo.exponential(stablehlo.negate(x)), splat(x.type, 1.0))


def _reduced(value: Any, dim: int, operation: Any, start: float) -> Any:
    """Reduce along ``dim`` and repeat the result there."""
    others = [axis for axis in range(len(value.type.shape)) if axis != dim]
    return spread(reduced(value, [dim], operation, start), value, others)


def _argument(call: Any, direction: str) -> list[Any]:
    x = call.operands[0]
    dim = _numbers(call)["dim"]
    i32 = ir.IntegerType.get_signless(32)
    element = x.type.element_type
    positions = stablehlo.iota(ir.RankedTensorType.get(x.type.shape, i32), dim)
    scalars = [ir.RankedTensorType.get([], element), ir.RankedTensorType.get([], i32)]
    # The initial position says that there is no value yet.
    start = ir.FloatAttr.get(element, 0.0) if isinstance(element, ir.FloatType) else ir.IntegerAttr.get(element, 0)
    initial = [
        stablehlo.constant(ir.DenseElementsAttr.get_splat(scalars[0], start)),
        stablehlo.constant(ir.DenseElementsAttr.get_splat(scalars[1], ir.IntegerAttr.get(i32, 2**31 - 1))),
    ]
    kinds = [ir.RankedTensorType.get(call.results[0].type.shape, kind) for kind in (element, i32)]
    reduction = stablehlo.ReduceOp(kinds, [x, positions], initial, ir.DenseI64ArrayAttr.get([dim]))
    block = reduction.body.blocks.append(*scalars, *scalars)
    with ir.InsertionPoint(block):
        value, position, other, other_position = block.arguments
        better = before(other, value, direction)
        worse = before(value, other, direction)
        equal = stablehlo.not_(stablehlo.or_(better, worse))
        taken = stablehlo.or_(better, stablehlo.and_(equal, compare(other_position, position, "LT")))
        # What has no value yet loses to everything.
        none = stablehlo.constant(ir.DenseElementsAttr.get_splat(scalars[1], ir.IntegerAttr.get(i32, 2**31 - 1)))
        taken = stablehlo.or_(taken, compare(position, none, "EQ"))
        taken = stablehlo.and_(taken, compare(other_position, none, "NE"))
        stablehlo.return_([stablehlo.select(taken, other, value), stablehlo.select(taken, other_position, position)])
    return [reduction.results[1]]
