"""StableHLO for this package's structured operators: sort, gather, scatter, windows, remainders. Runs in the worker."""

from collections.abc import Callable
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from torch_neuronx_compile.worker.comparisons import compare, greater
from torch_neuronx_compile.worker.constants import splat


def sort(call: Any, dim: int, descending: bool) -> Any:
    """Expand into one stable sort of the values and their positions; NaN is the greatest."""
    values = call.operands[0]
    shape, element = values.type.shape, values.type.element_type
    i32 = ir.IntegerType.get_signless(32)
    positions = stablehlo.iota(ir.RankedTensorType.get(shape, i32), dim)
    operation = stablehlo.SortOp([values.type, positions.type], [values, positions], dimension=dim, is_stable=True)
    scalar, scalar_i32 = ir.RankedTensorType.get([], element), ir.RankedTensorType.get([], i32)
    block = operation.comparator.blocks.append(scalar, scalar, scalar_i32, scalar_i32)
    with ir.InsertionPoint(block):
        left, right = block.arguments[:2]
        stablehlo.return_([greater(left, right) if descending else greater(right, left)])
    return [operation.results[0], stablehlo.convert(call.results[1].type, operation.results[1])]


def remainder(call: Any) -> Any:
    """Expand into StableHLO's remainder."""
    return stablehlo.remainder(*call.operands)


def gather_rows(call: Any) -> Any:
    """Expand into one gather of whole rows; StableHLO itself moves positions outside to the nearest row."""
    operand, index = call.operands
    rest = operand.type.shape[1:]
    batch = len(index.type.shape)
    numbers = stablehlo.GatherDimensionNumbers.get(
        offset_dims=list(range(batch, batch + len(rest))),
        collapsed_slice_dims=[0],
        operand_batching_dims=[],
        start_indices_batching_dims=[],
        start_index_map=[0],
        index_vector_dim=batch,
    )
    sizes = ir.DenseI64ArrayAttr.get([1, *rest])
    return stablehlo.gather(operand, index, numbers, sizes, indices_are_sorted=False)


def scatter_rows(call: Any, reduction: str) -> Any:
    """Expand into one scatter of whole rows; StableHLO itself leaves out rows outside."""
    operand, index, source = call.operands
    numbers = stablehlo.ScatterDimensionNumbers.get(
        update_window_dims=list(range(1, len(source.type.shape))),
        inserted_window_dims=[0],
        input_batching_dims=[],
        scatter_indices_batching_dims=[],
        scattered_dims_to_operand_dims=[0],
        index_vector_dim=1,
    )
    operation = stablehlo.ScatterOp(
        [operand.type], [operand], index, [source], numbers, indices_are_sorted=False, unique_indices=False
    )
    scalar = ir.RankedTensorType.get([], operand.type.element_type)
    block = operation.update_computation.blocks.append(scalar, scalar)
    with ir.InsertionPoint(block):
        stablehlo.return_([_COMBINE[reduction](*block.arguments)])
    return operation.results[0]


def reduce_window(
    call: Any, window: list[int], strides: list[int], spacing: list[int], padding: list[int], reduction: str
) -> Any:
    """Expand into a reduce-window whose leading dimensions have windows of one element."""
    operand = call.operands[0]
    scalar = ir.RankedTensorType.get([], operand.type.element_type)
    initial = splat(scalar, _identity(operand.type.element_type, reduction))
    rank = len(operand.type.shape)
    attributes = _window_attributes(rank, window, strides, padding, spacing=spacing)
    operation = stablehlo.ReduceWindowOp([call.results[0].type], [operand], [initial], **attributes)
    block = operation.body.blocks.append(scalar, scalar)
    with ir.InsertionPoint(block):
        stablehlo.return_([_COMBINE[reduction](*block.arguments)])
    return operation.results[0]


def convolve(
    call: Any,
    strides: list[int],
    padding: list[int],
    spacing: list[int],
    weight_spacing: list[int],
    feature_groups: int,
    batch_groups: int,
) -> Any:
    """Expand into a convolution with batch and features first."""
    spatial = list(range(2, 2 + len(strides)))
    numbers = stablehlo.ConvDimensionNumbers.get(
        input_batch_dimension=0,
        input_feature_dimension=1,
        input_spatial_dimensions=spatial,
        kernel_input_feature_dimension=1,
        kernel_output_feature_dimension=0,
        kernel_spatial_dimensions=spatial,
        output_batch_dimension=0,
        output_feature_dimension=1,
        output_spatial_dimensions=spatial,
    )
    return stablehlo.convolution(
        call.results[0].type,
        call.operands[0],
        call.operands[1],
        numbers,
        feature_groups,
        batch_groups,
        window_strides=ir.DenseI64ArrayAttr.get(strides),
        padding=_pairs(padding),
        lhs_dilation=ir.DenseI64ArrayAttr.get(spacing),
        rhs_dilation=ir.DenseI64ArrayAttr.get(weight_spacing),
    )


def window_argmax(call: Any, window: list[int], strides: list[int], dilation: list[int], padding: list[int]) -> Any:
    """Expand into a reduce-window over values and positions together."""
    operand = call.operands[0]
    shape, element = operand.type.shape, operand.type.element_type
    i32 = ir.IntegerType.get_signless(32)
    spatial = shape[len(shape) - len(window) :]
    count = 1
    for extent in spatial:
        count *= extent
    plane = stablehlo.reshape(
        ir.RankedTensorType.get(spatial, i32), stablehlo.iota(ir.RankedTensorType.get([count], i32), 0)
    )
    kind = ir.RankedTensorType.get(shape, i32)
    axes = list(range(len(shape) - len(window), len(shape)))
    positions = stablehlo.broadcast_in_dim(kind, plane, axes)
    scalars = [ir.RankedTensorType.get([], element), ir.RankedTensorType.get([], i32)]
    initial = [splat(scalars[0], _identity(element, "maximum")), splat(scalars[1], 2**31 - 1)]
    result = ir.RankedTensorType.get(call.results[0].type.shape, i32)
    attributes = _window_attributes(len(shape), window, strides, padding, dilation=dilation)
    operation = stablehlo.ReduceWindowOp([call.results[0].type, result], [operand, positions], initial, **attributes)
    block = operation.body.blocks.append(*scalars, *scalars)
    with ir.InsertionPoint(block):
        value, position, other, other_position = block.arguments
        equal = stablehlo.and_(compare(value, other, "EQ"), compare(other_position, position, "LT"))
        taken = stablehlo.or_(greater(other, value), equal)
        if isinstance(element, ir.FloatType):
            both = stablehlo.and_(compare(value, value, "NE"), compare(other, other, "NE"))
            taken = stablehlo.or_(taken, stablehlo.and_(both, compare(other_position, position, "GT")))
        stablehlo.return_([stablehlo.select(taken, other, value), stablehlo.select(taken, other_position, position)])
    return [operation.results[0], stablehlo.convert(call.results[1].type, operation.results[1])]


def _window_attributes(
    rank: int,
    window: list[int],
    strides: list[int],
    padding: list[int],
    *,
    dilation: list[int] | None = None,
    spacing: list[int] | None = None,
) -> dict[str, Any]:
    leading = rank - len(window)
    ones, inner = [1] * leading, [1] * len(window)
    return {
        "window_dimensions": ir.DenseI64ArrayAttr.get(ones + window),
        "window_strides": ir.DenseI64ArrayAttr.get(ones + strides),
        "base_dilations": ir.DenseI64ArrayAttr.get(ones + (spacing or inner)),
        "window_dilations": ir.DenseI64ArrayAttr.get(ones + (dilation or inner)),
        "padding": _pairs([0] * (2 * leading) + padding),
    }


def _pairs(amounts: list[int]) -> ir.Attribute:
    i64 = ir.IntegerType.get_signless(64)
    kind = ir.RankedTensorType.get([len(amounts) // 2, 2], i64)
    return ir.DenseElementsAttr.get([ir.IntegerAttr.get(i64, amount) for amount in amounts], kind)


_COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "sum": stablehlo.add,
    "product": stablehlo.multiply,
    "maximum": stablehlo.maximum,
    "minimum": stablehlo.minimum,
    "replace": lambda _, new: new,
}


def _identity(element: Any, reduction: str) -> float | int:
    if reduction in ("sum", "product"):
        return int(reduction == "product")
    low = reduction == "maximum"
    if isinstance(element, ir.FloatType):
        return float("-inf") if low else float("inf")
    if element.is_unsigned or element.width == 1:
        return 0 if low else int(2**element.width - 1)
    return int(-(2 ** (element.width - 1))) if low else int(2 ** (element.width - 1) - 1)


EXPANSIONS: dict[str, Callable[..., Any]] = {
    "neuron_compile.sort": sort,
    "neuron_compile.remainder": remainder,
    "neuron_compile.gather_rows": gather_rows,
    "neuron_compile.scatter_rows": scatter_rows,
    "neuron_compile.reduce_window": reduce_window,
    "neuron_compile.convolve": convolve,
    "neuron_compile.window_argmax": window_argmax,
}
"""Builders by operator: they take the call and its constants by name and return the results."""
