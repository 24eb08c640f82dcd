"""Convolutions, and the two gradients of one, which are convolutions as well."""

from math import prod
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from torch_neuronx_compile.compilers.emulator.rewrite.calls import foreign_call, integer, numbers
from torch_neuronx_compile.compilers.emulator.rewrite.values import (
    FLOATS,
    element,
    integers,
    leaves,
    producer,
    shape,
    view_of,
    whole_view,
)
from torch_neuronx_compile.compilers.emulator.rewrite.window_attributes import numbers_of, padding_of
from torch_neuronx_compile.worker.constants import splat

SMALLEST = 16 * 1024
"""Multiplications from which a call of ATen pays off."""


def rewrite_convolution(operation: Any) -> None:
    """Replace a convolution of floats over one to three axes by a call, where torch has such a one."""
    image, window = operation.operands
    result = operation.results[0]
    where = stablehlo.ConvDimensionNumbers(operation.attributes["dimension_numbers"])
    space = len(where.input_spatial_dimensions)
    if not (element(image) == element(window) == element(result) and element(image) in FLOATS and 1 <= space <= 3):
        return
    if _number(operation, "batch_group_count") != 1 or any(_flags(operation, "window_reversal", space)):
        return
    stride, stretch, dilation = (
        numbers_of(operation, name, space) for name in ("window_strides", "lhs_dilation", "rhs_dilation")
    )
    low, high = padding_of(operation, space)
    groups = _number(operation, "feature_group_count")
    out = [where.output_batch_dimension, where.output_feature_dimension, *where.output_spatial_dimensions]
    sizes = [shape(result)[axis] for axis in out]
    window_axes = list(where.kernel_spatial_dimensions)
    kernel = [shape(window)[axis] for axis in window_axes]
    if prod(shape(result)) * prod(kernel) * shape(window)[where.kernel_input_feature_dimension] < SMALLEST:
        return
    span = [step * (extent - 1) for step, extent in zip(dilation, kernel, strict=True)]
    turned = producer(window, "reverse")
    reversed_ = turned is not None and sorted(integers(turned.attributes["dimensions"])) == sorted(window_axes)
    form = "forward"
    if max(stretch) > 1 or (reversed_ and groups == 1 and max(stride) == 1):
        padding = [whole - before for whole, before in zip(span, low, strict=True)]
        extents = [shape(image)[axis] for axis in where.input_spatial_dimensions]
        extra = [sizes[2 + i] - ((extents[i] - 1) * stretch[i] - 2 * padding[i] + span[i] + 1) for i in range(space)]
        fits = all(0 <= more < max(step, spread) for more, step, spread in zip(extra, stretch, dilation, strict=True))
        if fits and min(padding) >= 0 and groups == 1 and max(stride) == 1:
            form = "transposed reversed" if reversed_ else "transposed"
        elif max(stretch) > 1:
            return
    elif groups == 1 and (_is_long(sizes[2:], kernel) or _swaps_first_axes(producer(window, "transpose"))):
        extents = [shape(image)[axis] for axis in where.input_spatial_dimensions]
        made = [(extents[i] + 2 * low[i] - stride[i] * (sizes[2 + i] - 1) - 1) // dilation[i] + 1 for i in range(space)]
        if made == kernel and min(low) >= 0 and space == 2:
            form = "kernel gradient"
    if turned is not None and form == "transposed reversed":
        window = turned.operands[0]
    views = (
        view_of(image).permuted(
            [where.input_batch_dimension, where.input_feature_dimension, *where.input_spatial_dimensions]
        ),
        view_of(window).permuted(
            [where.kernel_output_feature_dimension, where.kernel_input_feature_dimension, *window_axes]
        ),
    )
    # The call writes the result as a transpose that follows would have it.
    transpose = _only_transpose(result)
    if transpose is not None:
        axes = integers(transpose.attributes["permutation"])
        result, out = transpose.results[0], [axes.index(axis) for axis in out]
    # Channels last is how oneDNN convolves without changing the order first; results of the program are row-major.
    order = (out[0], *out[2:], out[1]) if space == 2 and form != "kernel gradient" and not leaves(result) else None
    attributes = {
        "view0": views[0].attribute(),
        "view1": views[1].attribute(),
        "result": whole_view(result, order).permuted(out).attribute(),
        "stride": numbers(stride),
        "stretch": numbers(stretch),
        "dilation": numbers(dilation),
        "low": numbers(low),
        "high": numbers(high),
        "groups": integer(groups),
        "form": ir.StringAttr.get(form),
    }
    with ir.InsertionPoint(operation):
        (made_by_call,) = foreign_call(
            "neuron_convolve",
            [result.type],
            [view.base for view in views],
            attributes,
            operand_orders=[view.order for view in views],
            result_orders=[order],
        )
    (operation if transpose is None else transpose).results[0].replace_all_uses_with(made_by_call)


def lengthen_window(operation: Any) -> None:
    """Add a zero to a window along an axis that XLA would take for one of groups, and die.

    Where a window is larger than its image, XLA lets them change places. It leaves out axes along which the window is
    as long as the image is spread and moves by one element less, without padding, whatever the image's extent
    (``AlgebraicSimplifierVisitor::SwapConvOperands``, jaxlib 0.10.2).
    """
    window = operation.operands[1]
    where = stablehlo.ConvDimensionNumbers(operation.attributes["dimension_numbers"])
    space = len(where.input_spatial_dimensions)
    step, spread, dilation = (
        numbers_of(operation, name, space) for name in ("window_strides", "lhs_dilation", "rhs_dilation")
    )
    low, high = padding_of(operation, space)
    turned = _flags(operation, "window_reversal", space)
    longer = [0] * len(shape(window))
    for i, axis in enumerate(where.kernel_spatial_dimensions):
        length = shape(window)[axis]
        as_of_groups = (spread[i], step[i], dilation[i], low[i], high[i]) == (length, length - 1, 1, 0, 0)
        if as_of_groups and not turned[i]:
            longer[axis], high[i] = 1, 1
    if not any(longer):
        return
    none = [0] * len(longer)
    with ir.InsertionPoint(operation):
        kind = ir.RankedTensorType(window.type).element_type
        zero = splat(ir.RankedTensorType.get([], kind), 0)
        operation.operands[1] = stablehlo.pad(window, zero, none, longer, none)
    i64 = ir.IntegerType.get_signless(64)
    amounts = [amount for pair in zip(low, high, strict=True) for amount in pair]
    operation.attributes["padding"] = ir.DenseElementsAttr.get(
        [ir.IntegerAttr.get(i64, amount) for amount in amounts], ir.RankedTensorType.get([space, 2], i64)
    )


def _is_long(out: list[int], window: list[int]) -> bool:
    """Guess from sizes: the window of a kernel's gradient is a whole image, and its result the small kernel."""
    return all(small <= large for small, large in zip(out, window, strict=True)) and max(window) > 7


def _swaps_first_axes(transpose: Any | None) -> bool:
    """Return whether batch and features change places, as in what becomes the window of a kernel's gradient."""
    return transpose is not None and integers(transpose.attributes["permutation"])[:2] == [1, 0]


def _only_transpose(result: Any) -> Any | None:
    """Return the transpose that is all that uses ``result``."""
    users = [use.owner.operation for use in result.uses]
    return users[0] if len(users) == 1 and users[0].name == "stablehlo.transpose" else None


def _number(operation: Any, name: str) -> int:
    return int(ir.IntegerAttr(operation.attributes[name]).value) if name in operation.attributes else 1


def _flags(operation: Any, name: str, space: int) -> list[bool]:
    return list(ir.DenseBoolArrayAttr(operation.attributes[name])) if name in operation.attributes else [False] * space
