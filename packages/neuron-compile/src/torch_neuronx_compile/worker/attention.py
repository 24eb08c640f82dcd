"""Attention as StableHLO composites. Runs in the worker."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from torch_neuronx_compile.worker.builders import reduced, replaced, scaled, spread, widened
from torch_neuronx_compile.worker.comparisons import compare
from torch_neuronx_compile.worker.composites import composite
from torch_neuronx_compile.worker.constants import splat

FORWARD, BACKWARD = "neuron.attention", "neuron.attention_backward"
"""Names of the composites. Operands: query, key, value and, if there is one, the bias of the scores; the backward's
begin with the gradient and end with the forward's results. Those are [batch, queries, heads, size], all else has heads
first. Attributes: ``causal``, ``scale``."""


def attention(call: Any, causal: bool, scale: float, bias: None = None) -> Any:
    """Expand ``attention(query, key, value, bias, causal, scale)``: the result, and a number per query."""
    return composite(FORWARD, call, _attributes(causal, scale), partial(_forward, causal=causal, scale=scale))


def attention_backward(call: Any, causal: bool, scale: float, bias: None = None) -> Any:
    """Expand the gradient of :func:`attention` by query, key and value."""
    return composite(BACKWARD, call, _attributes(causal, scale), partial(_backward, causal=causal, scale=scale))


def _attributes(causal: bool, scale: float) -> dict[str, ir.Attribute]:
    return {"causal": ir.BoolAttr.get(causal), "scale": ir.FloatAttr.get(ir.F64Type.get(), scale)}


def _forward(operands: list[Any], causal: bool, scale: float) -> list[Any]:
    query, key, value = map(widened, operands[:3])
    scores = _scores(query, key, operands[3] if len(operands) == 4 else None, causal, scale)
    largest = reduced(scores, [3], stablehlo.MaxOp, -math.inf)
    largest = replaced(largest, -math.inf, 0.0, largest)
    weights = stablehlo.exponential(stablehlo.subtract(scores, spread(largest, scores, [0, 1, 2])))
    total = reduced(weights, [3], stablehlo.AddOp, 0.0)
    product = _product(weights, _repeated(value, query), 3, 2)
    output = stablehlo.divide(product, spread(replaced(total, 0.0, 1.0, total), product, [0, 1, 2]))
    logsumexp = replaced(total, 0.0, 0.0, stablehlo.add(stablehlo.log(total), largest))
    return [stablehlo.transpose(output, ir.DenseI64ArrayAttr.get([0, 2, 1, 3])), logsumexp]


def _backward(operands: list[Any], causal: bool, scale: float) -> list[Any]:
    grad, query, key, value = map(widened, operands[:4])
    output = stablehlo.transpose(widened(operands[-2]), ir.DenseI64ArrayAttr.get([0, 2, 1, 3]))
    logsumexp = operands[-1]
    scores = _scores(query, key, operands[4] if len(operands) == 7 else None, causal, scale)
    weights = stablehlo.exponential(stablehlo.subtract(scores, spread(logsumexp, scores, [0, 1, 2])))
    along = reduced(stablehlo.multiply(grad, output), [3], stablehlo.AddOp, 0.0)
    grad_weights = _product(grad, _repeated(value, query), 3, 3)
    grad_scores = stablehlo.multiply(weights, stablehlo.subtract(grad_weights, spread(along, scores, [0, 1, 2])))
    grad_query = scaled(_product(grad_scores, _repeated(key, query), 3, 2), scale)
    grad_key = _gathered(_product(grad_scores, scaled(query, scale), 2, 2), key)
    grad_value = _gathered(_product(weights, grad, 2, 2), value)
    return [grad_query, grad_key, grad_value]


def _scores(query: Any, key: Any, bias: Any | None, causal: bool, scale: float) -> Any:
    scores = _product(scaled(query, scale), _repeated(key, query), 3, 3)
    if causal:
        plane = ir.RankedTensorType.get(scores.type.shape[2:], ir.IntegerType.get_signless(32))
        seen = compare(stablehlo.iota(plane, 1), stablehlo.iota(plane, 0), "LE")
        everywhere = ir.RankedTensorType.get(scores.type.shape, ir.IntegerType.get_signless(1))
        seen = stablehlo.broadcast_in_dim(everywhere, seen, ir.DenseI64ArrayAttr.get([2, 3]))
        scores = stablehlo.select(seen, scores, splat(scores.type, -math.inf))
    if bias is None:
        return scores
    return stablehlo.add(scores, spread(widened(bias), scores, [0, 1, 2, 3]))


def _product(left: Any, right: Any, left_axis: int, right_axis: int) -> Any:
    """Sum products over one of the last two axes of each; the others stay."""
    shape = [*left.type.shape[:2], left.type.shape[5 - left_axis], right.type.shape[5 - right_axis]]
    numbers = stablehlo.DotDimensionNumbers.get([0, 1], [0, 1], [left_axis], [right_axis])
    return stablehlo.dot_general(ir.RankedTensorType.get(shape, left.type.element_type), left, right, numbers)


def _repeated(value: Any, query: Any) -> Any:
    """Give keys or values the heads of ``query``: each of their own serves as many queries in a row."""
    batch, heads, length, size = value.type.shape
    times = query.type.shape[1] // heads
    if times == 1:
        return value
    element = value.type.element_type
    wide = ir.RankedTensorType.get([batch, heads, times, length, size], element)
    many = stablehlo.broadcast_in_dim(wide, value, ir.DenseI64ArrayAttr.get([0, 1, 3, 4]))
    return stablehlo.reshape(ir.RankedTensorType.get([batch, heads * times, length, size], element), many)


def _gathered(gradient: Any, like: Any) -> Any:
    """Undo :func:`_repeated` for a gradient."""
    batch, heads, length, size = like.type.shape
    times = gradient.type.shape[1] // heads
    if times == 1:
        return gradient
    element = gradient.type.element_type
    parts = stablehlo.reshape(ir.RankedTensorType.get([batch, heads, times, length, size], element), gradient)
    return reduced(parts, [2], stablehlo.AddOp, 0.0)


EXPANSIONS: dict[str, Callable[..., Any]] = {
    "neuron_compile.attention": attention,
    "neuron_compile.attention_backward": attention_backward,
}
"""Builders by operator: they take the call and its constants by name and return the results."""
