"""Pooling: the largest element of each window, and its place where somebody asks for that."""

from math import prod
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from torch_neuronx_compile.compilers.emulator.rewrite.calls import foreign_call, numbers
from torch_neuronx_compile.compilers.emulator.rewrite.values import (
    FLOATS,
    element,
    integers,
    leaves,
    producer,
    shape,
    splat,
    view_of,
    whole_view,
)
from torch_neuronx_compile.compilers.emulator.rewrite.window_attributes import numbers_of, padding_of

SMALLEST = 4 * 1024
"""Elements from which a call of ATen pays off."""

# Of two pairs of a value and its place: the larger value, NaN above all others, and of equal values the first place.
# Arguments are numbered first, then what each line computes.
_LARGEST_AND_ITS_PLACE = [
    "compare EQ 0 2",
    "compare LT 3 1",
    "and 4 5",
    "compare GT 2 0",
    "compare NE 2 2",
    "compare EQ 0 0",
    "and 8 9",
    "or 7 10",
    "or 11 6",
    "compare NE 0 0",
    "and 13 8",
    "compare GT 3 1",
    "and 14 15",
    "or 12 16",
    "select 17 2 0",
    "select 17 3 1",
    "return 18 19",
]


def rewrite_window(operation: Any) -> None:
    """Replace a search of windows over all axes but the first two of four or five by a call.

    XLA's plain maximum loses NaN where it computes several windows at once; what is small it searches with places.
    """
    lines, places = _lines(operation.regions[0].blocks[0]), len(operation.results) == 2
    if lines != (_LARGEST_AND_ITS_PLACE if places else ["maximum 0 1", "return 2"]):
        return
    image, result = operation.operands[0], operation.results[0]
    rank = len(shape(image))
    if rank not in (4, 5) or element(image) not in FLOATS or prod(shape(image)) < SMALLEST or 0 in shape(result):
        return
    if splat(operation.operands[len(operation.operands) // 2]) != float("-inf"):
        return
    places = places and any(True for _ in operation.results[1].uses)
    if places and not _counts_elements(operation.operands[1]):
        return
    window, stride, dilation, stretch = (
        numbers_of(operation, name, rank)
        for name in ("window_dimensions", "window_strides", "window_dilations", "base_dilations")
    )
    low, high = padding_of(operation, rank)
    if {*window[:2], *stride[:2], *dilation[:2], *stretch} != {1} or any(low[:2] + high[:2]):
        return
    window, stride, dilation, low, high = (each[2:] for each in (window, stride, dilation, low, high))
    even = _torch_has(shape(image)[2:], shape(result)[2:], window, stride, dilation, low)
    if places and not even:
        return
    uneven = [] if even else [number for pair in reversed([*zip(low, high, strict=True)]) for number in pair]
    view = view_of(image)
    order = None if view.order is None or leaves(result) else view.order
    attributes = {
        "view0": view.attribute(),
        "result": whole_view(result, order).attribute(),
        "window": numbers(window),
        "stride": numbers(stride),
        "padding": numbers(low if even else [0] * len(low)),
        "uneven": numbers(uneven),
        "dilation": numbers(dilation),
    }
    kinds = [found.type for found in operation.results][: 2 if places else 1]
    with ir.InsertionPoint(operation):
        made = foreign_call(
            "neuron_pool",
            kinds,
            [view.base],
            attributes,
            operand_orders=[view.order],
            result_orders=[order] * len(kinds),
        )
    for old, new in zip(operation.results, made, strict=False):
        old.replace_all_uses_with(new)
    operation.erase()


def _torch_has(
    extents: list[int], made: list[int], window: list[int], stride: list[int], dilation: list[int], low: list[int]
) -> bool:
    """Return whether torch makes ``made`` windows with as much padding behind each axis as there is before it."""
    for extent, count, width, jump, step, before in zip(extents, made, window, stride, dilation, low, strict=True):
        room = extent + 2 * before - step * (width - 1) - 1
        if not 0 <= before <= width // 2 or room < 0 or room // jump + 1 != count:
            return False
    return True


def _counts_elements(value: Any) -> bool:
    """Return whether every element of ``value`` is its place among those of the axes behind the first two."""
    spread = producer(value, "broadcast_in_dim")
    if spread is None:
        return False
    plane = spread.operands[0]
    flat = producer(plane, "reshape")
    counted = None if flat is None else producer(flat.operands[0], "iota")
    axes = integers(spread.attributes["broadcast_dimensions"])
    return (
        counted is not None
        and axes == list(range(2, len(shape(value))))
        and shape(plane) == shape(value)[2:]
        and len(shape(counted.results[0])) == 1
    )


def _lines(block: Any) -> list[str]:
    known = {argument: number for number, argument in enumerate(block.arguments)}
    lines = []
    for found in block.operations:
        operation = found.operation
        words = [operation.name.removeprefix("stablehlo.")]
        if words == ["compare"]:
            words.append(str(stablehlo.ComparisonDirectionAttr(operation.attributes["comparison_direction"]).value))
        words += [str(known.get(operand, "?")) for operand in operation.operands]
        lines.append(" ".join(words))
        for result in operation.results:
            known[result] = len(known)
    return lines
