"""Calls that say what they are, with their definition beside them: StableHLO composites. Runs in the worker.

A compiler that knows a composite takes it as a whole, any other its definition.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func, stablehlo

from torch_neuronx_compile.worker.comparisons import compare
from torch_neuronx_compile.worker.constants import splat


def composite(
    name: str, call: Any, attributes: Mapping[str, ir.Attribute], define: Callable[[list[Any]], list[Any]]
) -> list[Any]:
    """Build the composite ``name`` with the operands of ``call``, in whose place it stands; return its results.

    ``define`` builds the results from operands; composites of equal signature and attributes share one definition.
    """
    operands, kinds = list(call.operands), [result.type for result in call.results]
    signature = ir.FunctionType.get([operand.type for operand in operands], kinds)
    described = ir.DictAttr.get(dict(attributes))
    symbol = f"{name}.{hashlib.sha256(f'{signature} {described}'.encode()).hexdigest()[:16]}"
    module: Any = call.parent.parent.regions[0].blocks[0]
    if all(ir.StringAttr(found.attributes["sym_name"]).value != symbol for found in module):
        with ir.InsertionPoint.at_block_begin(module):
            # The stubs show the generated class, not the one that jaxlib derives from it.
            function: Any = func.FuncOp(symbol, signature, visibility="private")  # type: ignore[call-arg]
            block = function.add_entry_block()
        with ir.InsertionPoint(block):
            results = define(list(block.arguments))
            func.ReturnOp([narrowed(result, kind) for result, kind in zip(results, kinds, strict=True)])
    made = ir.Operation.create(
        "stablehlo.composite",
        results=kinds,
        operands=operands,
        attributes={
            "name": ir.StringAttr.get(name),
            "composite_attributes": described,
            "decomposition": ir.FlatSymbolRefAttr.get(symbol),
            "version": ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 1),
        },
    )
    return list(made.results)


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
