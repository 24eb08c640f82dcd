"""Attention in StableHLO: a composite, which says what it is, with its definition beside it. Runs in the worker.

A compiler that knows the composite takes it as a whole, any other its definition. Attributes: ``causal``, ``scale``.
"""

import hashlib
import math
from collections.abc import Callable
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func, stablehlo

from torch_neuronx_compile.worker.comparisons import compare
from torch_neuronx_compile.worker.constants import splat

FORWARD, BACKWARD = "neuron.attention", "neuron.attention_backward"
"""Names of the composites. Operands: query, key, value and, if there is one, the bias of the scores; the backward's
begin with the gradient and end with the forward's results. Those are [batch, queries, heads, size], all else has heads
first."""


def attention(call: Any, causal: bool, scale: float, bias: None = None) -> Any:
    """Expand ``attention(query, key, value, bias, causal, scale)``: the result, and a number per query."""
    return _composite(FORWARD, call, causal, scale, _forward)


def attention_backward(call: Any, causal: bool, scale: float, bias: None = None) -> Any:
    """Expand the gradient of :func:`attention` by query, key and value."""
    return _composite(BACKWARD, call, causal, scale, _backward)


def _composite(name: str, call: Any, causal: bool, scale: float, define: Callable[..., list[Any]]) -> Any:
    operands, kinds = list(call.operands), [result.type for result in call.results]
    signature = ir.FunctionType.get([operand.type for operand in operands], kinds)
    digest = hashlib.sha256(f"{signature} {causal} {scale!r}".encode()).hexdigest()
    symbol = f"{name}.{digest[:16]}"
    module: Any = call.parent.parent.regions[0].blocks[0]
    if all(str(found.attributes["sym_name"]) != f'"{symbol}"' for found in module):
        with ir.InsertionPoint.at_block_begin(module):
            # The stubs show the generated class, not the one that jaxlib derives from it.
            function: Any = func.FuncOp(symbol, signature, visibility="private")  # type: ignore[call-arg]
            block = function.add_entry_block()
        with ir.InsertionPoint(block):
            func.ReturnOp(define(list(block.arguments), kinds, causal, scale))
    attributes = {"causal": ir.BoolAttr.get(causal), "scale": ir.FloatAttr.get(ir.F64Type.get(), scale)}
    made = ir.Operation.create(
        "stablehlo.composite",
        results=kinds,
        operands=operands,
        attributes={
            "name": ir.StringAttr.get(name),
            "composite_attributes": ir.DictAttr.get(attributes),
            "decomposition": ir.FlatSymbolRefAttr.get(symbol),
            "version": ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 1),
        },
    )
    return list(made.results)


def _forward(arguments: list[Any], kinds: list[Any], causal: bool, scale: float) -> list[Any]:
    query, key, value = map(_wide, arguments[:3])
    scores = _scores(query, key, arguments[3] if len(arguments) == 4 else None, causal, scale)
    largest = _reduced(scores, stablehlo.MaxOp, -math.inf)
    largest = _where(largest, -math.inf, 0.0, largest)
    weights = stablehlo.exponential(stablehlo.subtract(scores, _along(largest, scores)))
    total = _reduced(weights, stablehlo.AddOp, 0.0)
    product = _product(weights, _repeated(value, query), 3, 2)
    output = stablehlo.divide(product, _along(_where(total, 0.0, 1.0, total), product))
    logsumexp = _where(total, 0.0, 0.0, stablehlo.add(stablehlo.log(total), largest))
    output = stablehlo.transpose(output, ir.DenseI64ArrayAttr.get([0, 2, 1, 3]))
    return [_narrow(output, kinds[0]), logsumexp]


def _backward(arguments: list[Any], kinds: list[Any], causal: bool, scale: float) -> list[Any]:
    grad, query, key, value = map(_wide, arguments[:4])
    output = stablehlo.transpose(_wide(arguments[-2]), ir.DenseI64ArrayAttr.get([0, 2, 1, 3]))
    logsumexp = arguments[-1]
    scores = _scores(query, key, arguments[4] if len(arguments) == 7 else None, causal, scale)
    weights = stablehlo.exponential(stablehlo.subtract(scores, _along(logsumexp, scores)))
    along = _reduced(stablehlo.multiply(grad, output), stablehlo.AddOp, 0.0)
    grad_weights = _product(grad, _repeated(value, query), 3, 3)
    grad_scores = stablehlo.multiply(weights, stablehlo.subtract(grad_weights, _along(along, scores)))
    grad_query = _scaled(_product(grad_scores, _repeated(key, query), 3, 2), scale)
    grad_key = _gathered(_product(grad_scores, _scaled(query, scale), 2, 2), key)
    grad_value = _gathered(_product(weights, grad, 2, 2), value)
    return [_narrow(found, kind) for found, kind in zip((grad_query, grad_key, grad_value), kinds, strict=True)]


def _scores(query: Any, key: Any, bias: Any | None, causal: bool, scale: float) -> Any:
    scores = _product(_scaled(query, scale), _repeated(key, query), 3, 3)
    if causal:
        plane = ir.RankedTensorType.get(scores.type.shape[2:], ir.IntegerType.get_signless(32))
        seen = compare(stablehlo.iota(plane, 1), stablehlo.iota(plane, 0), "LE")
        everywhere = ir.RankedTensorType.get(scores.type.shape, ir.IntegerType.get_signless(1))
        seen = stablehlo.broadcast_in_dim(everywhere, seen, ir.DenseI64ArrayAttr.get([2, 3]))
        scores = stablehlo.select(seen, scores, splat(scores.type, -math.inf))
    if bias is None:
        return scores
    return stablehlo.add(
        scores, stablehlo.broadcast_in_dim(scores.type, _wide(bias), ir.DenseI64ArrayAttr.get(range(4)))
    )


def _product(left: Any, right: Any, left_axis: int, right_axis: int) -> Any:
    """Sum products over one of the last two axes of each; the others stay."""
    shape = [*left.type.shape[:2], left.type.shape[5 - left_axis], right.type.shape[5 - right_axis]]
    numbers = stablehlo.DotDimensionNumbers.get([0, 1], [0, 1], [left_axis], [right_axis])
    return stablehlo.dot_general(ir.RankedTensorType.get(shape, left.type.element_type), left, right, numbers)


def _reduced(value: Any, operation: Any, start: float) -> Any:
    scalar = ir.RankedTensorType.get([], value.type.element_type)
    row = ir.RankedTensorType.get(value.type.shape[:-1], value.type.element_type)
    reduction = stablehlo.ReduceOp([row], [value], [splat(scalar, start)], ir.DenseI64ArrayAttr.get([3]))
    block = reduction.body.blocks.append(scalar, scalar)
    with ir.InsertionPoint(block):
        stablehlo.return_([operation(*block.arguments).result])
    return reduction.results[0]


def _along(row: Any, like: Any) -> Any:
    return stablehlo.broadcast_in_dim(like.type, row, ir.DenseI64ArrayAttr.get(range(3)))


def _where(value: Any, number: float, then: float, otherwise: Any) -> Any:
    equal = compare(value, splat(value.type, number), "EQ")
    return stablehlo.select(equal, splat(value.type, then), otherwise)


def _scaled(value: Any, scale: float) -> Any:
    return stablehlo.multiply(value, splat(value.type, scale))


def _wide(value: Any) -> Any:
    return _narrow(value, ir.RankedTensorType.get(value.type.shape, ir.F32Type.get()))


def _narrow(value: Any, kind: Any) -> Any:
    return value if value.type == kind else stablehlo.convert(kind, value)


def _repeated(value: Any, query: Any) -> Any:
    """Give keys or values the heads of ``query``: each of their own serves as many queries in a row."""
    batch, heads, length, size = value.type.shape
    times = query.type.shape[1] // heads
    if times == 1:
        return value
    element = value.type.element_type
    wide = ir.RankedTensorType.get([batch, heads, times, length, size], element)
    spread = stablehlo.broadcast_in_dim(wide, value, ir.DenseI64ArrayAttr.get([0, 1, 3, 4]))
    return stablehlo.reshape(ir.RankedTensorType.get([batch, heads * times, length, size], element), spread)


def _gathered(gradient: Any, like: Any) -> Any:
    """Undo :func:`_repeated` for a gradient."""
    batch, heads, length, size = like.type.shape
    times = gradient.type.shape[1] // heads
    if times == 1:
        return gradient
    element = gradient.type.element_type
    parts = stablehlo.reshape(ir.RankedTensorType.get([batch, heads, times, length, size], element), gradient)
    scalar = ir.RankedTensorType.get([], element)
    reduction = stablehlo.ReduceOp(
        [ir.RankedTensorType.get([batch, heads, length, size], element)],
        [parts],
        [splat(scalar, 0.0)],
        ir.DenseI64ArrayAttr.get([2]),
    )
    block = reduction.body.blocks.append(scalar, scalar)
    with ir.InsertionPoint(block):
        stablehlo.return_([stablehlo.AddOp(*block.arguments).result])
    return reduction.results[0]


EXPANSIONS: dict[str, Callable[..., Any]] = {
    "neuron_compile.attention": attention,
    "neuron_compile.attention_backward": attention_backward,
}
"""Builders by operator: they take the call and its constants by name and return the results."""
