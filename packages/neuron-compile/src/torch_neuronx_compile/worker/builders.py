"""Builders of StableHLO that definitions are made of, an operation or a few each. Runs in the worker."""

from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from torch_neuronx_compile.worker.comparisons import compare
from torch_neuronx_compile.worker.constants import splat


def widened(value: Any) -> Any:
    """Return ``value`` as float32."""
    return narrowed(value, ir.RankedTensorType.get(value.type.shape, ir.F32Type.get()))


def narrowed(value: Any, kind: Any) -> Any:
    """Return ``value`` as a tensor of the type ``kind``, which has its shape."""
    return value if value.type == kind else stablehlo.convert(kind, value)


def scaled(value: Any, factor: float) -> Any:
    """Multiply every element by ``factor``."""
    return stablehlo.multiply(value, splat(value.type, factor))


def replaced(value: Any, number: float, then: float, otherwise: Any) -> Any:
    """Return ``otherwise``, and ``then`` where ``value`` is ``number``."""
    equal = compare(value, splat(value.type, number), "EQ")
    return stablehlo.select(equal, splat(value.type, then), otherwise)


def reduced(value: Any, axes: list[int], operation: Any, start: float) -> Any:
    """Reduce over ``axes``, which go away."""
    element = value.type.element_type
    scalar = ir.RankedTensorType.get([], element)
    rest = [extent for axis, extent in enumerate(value.type.shape) if axis not in axes]
    reduction = stablehlo.ReduceOp(
        [ir.RankedTensorType.get(rest, element)], [value], [splat(scalar, start)], ir.DenseI64ArrayAttr.get(axes)
    )
    block = reduction.body.blocks.append(scalar, scalar)
    with ir.InsertionPoint(block):
        stablehlo.return_([operation(*block.arguments).result])
    return reduction.results[0]


def spread(value: Any, like: Any, axes: list[int]) -> Any:
    """Repeat ``value``, whose axes are the ``axes`` of ``like``, to the shape of that."""
    return stablehlo.broadcast_in_dim(like.type, value, ir.DenseI64ArrayAttr.get(axes))
