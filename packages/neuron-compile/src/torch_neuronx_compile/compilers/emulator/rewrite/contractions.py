"""Matrix products: XLA:CPU's are slow in bfloat16 and not the fastest in float32."""

from math import prod
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from torch_neuronx_compile.compilers.emulator.rewrite.calls import foreign_call, integer
from torch_neuronx_compile.compilers.emulator.rewrite.values import FLOATS, element, replace, shape, view_of


def rewrite_contraction(operation: Any) -> None:
    """Replace a ``dot_general`` of floats by a call, however small.

    XLA hands its own to another thread, where the program then goes on, with torch's threads waiting on this one.
    """
    left, right = operation.operands
    if not (element(left) == element(right) == element(operation.results[0]) and element(left) in FLOATS):
        return
    numbers = stablehlo.DotDimensionNumbers(operation.attributes["dot_dimension_numbers"])
    left_batch, right_batch = list(numbers.lhs_batching_dimensions), list(numbers.rhs_batching_dimensions)
    left_inner, right_inner = list(numbers.lhs_contracting_dimensions), list(numbers.rhs_contracting_dimensions)
    inner = prod(shape(left)[axis] for axis in left_inner)
    if prod(shape(operation.results[0])) * inner == 0:
        return
    left_free = [axis for axis in range(len(shape(left))) if axis not in left_batch + left_inner]
    right_free = [axis for axis in range(len(shape(right))) if axis not in right_batch + right_inner]
    views = (
        view_of(left).permuted(left_batch + left_free + left_inner),
        view_of(right).permuted(right_batch + right_inner + right_free),
    )
    attributes = {
        "view0": views[0].attribute(),
        "view1": views[1].attribute(),
        "batch": integer(len(left_batch)),
        "contracted": integer(len(left_inner)),
    }
    with ir.InsertionPoint(operation):
        types = [operation.results[0].type]
        (product,) = foreign_call(
            "neuron_contract",
            types,
            [view.base for view in views],
            attributes,
            operand_orders=[view.order for view in views],
        )
    replace(operation, product)
