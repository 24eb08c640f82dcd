"""Reductions: XLA:CPU adds floats one by one, and computes what a reduction reads once more for each of them."""

from math import prod
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from torch_neuronx_compile.compilers.emulator.rewrite.calls import foreign_call, numbers
from torch_neuronx_compile.compilers.emulator.rewrite.values import (
    FLOATS,
    Reduction,
    element,
    producer,
    reduction,
    replace,
    reshaped,
    row_of,
    shape,
    splat,
    view_of,
)

SMALLEST = 4 * 1024
"""Elements from which a call of ATen pays off."""


def rewrite_softmax(operation: Any) -> None:
    """Replace the last step of a softmax over the last axis, a division or a subtraction, by a call for all of it."""
    logarithm = operation.name == "stablehlo.subtract"
    source = _log_softmax_source(operation) if logarithm else _softmax_source(operation)
    if source is None or prod(shape(source)) < SMALLEST or element(source) not in FLOATS:
        return
    guard = None if logarithm else _guard(operation, source)
    attributes = {"logarithm": ir.BoolAttr.get(logarithm), "masked": ir.BoolAttr.get(guard is not None)}
    with ir.InsertionPoint(operation):
        (result,) = foreign_call("neuron_softmax", [operation.results[0].type], [source], attributes)
    operation.results[0].replace_all_uses_with(result)
    if guard is not None:
        guard.results[0].replace_all_uses_with(result)


def rewrite_moments(operation: Any) -> None:
    """Replace a sum of squares over the last axes by a call; where the mean is subtracted first, the mean with it."""
    found = reduction(operation.results[0])
    if found is None or found.kind != "add" or not found.trailing or element(found.source) != "f32":
        return
    product = producer(found.source, "multiply")
    if product is None or product.operands[0] != product.operands[1] or prod(shape(found.source)) < SMALLEST:
        return
    values = product.operands[0]
    mean = _mean_of(values, found)
    source = _narrow(values if mean is None else producer(values, "subtract").operands[0])  # type: ignore[union-attr]
    types = [operation.results[0].type] * (1 if mean is None else 2)
    where = operation if mean is None else mean.owner
    with ir.InsertionPoint(where):
        results = foreign_call("neuron_moments", types, [source], {})
        if mean is not None:
            replacement = reshaped(results[0], mean)
            mean.replace_all_uses_with(replacement)
    operation.results[0].replace_all_uses_with(results[-1])


def rewrite_reduction(operation: Any) -> None:
    """Replace a sum or an extreme of floats by a call, if it is large enough."""
    found = reduction(operation.results[0])
    if found is None or found.kind == "and" or element(found.source) not in FLOATS or not found.axes:
        _widen(operation)
        return
    if prod(shape(found.source)) < SMALLEST or 0 in shape(found.source):
        _widen(operation)
        return
    view = view_of(found.source)
    attributes = {
        "view0": view.attribute(),
        "axes": numbers(found.axes),
        "kind": ir.StringAttr.get(found.kind),
    }
    with ir.InsertionPoint(operation):
        (result,) = foreign_call(
            "neuron_reduce", [operation.results[0].type], [view.base], attributes, operand_orders=[view.order]
        )
    replace(operation, result)


def _widen(operation: Any) -> None:
    """Add and multiply narrow floats in float32: XLA would round after every element, ATen and the chip do not."""
    if len(operation.operands) != 2 or element(operation.operands[0]) not in ("bf16", "f16"):
        return
    body = list(operation.regions[0].blocks[0].operations)
    combine = {"stablehlo.add": stablehlo.add, "stablehlo.multiply": stablehlo.multiply}.get(body[0].operation.name)
    if len(body) != 2 or combine is None:
        return
    kind = operation.results[0].type
    wide = ir.F32Type.get()
    with ir.InsertionPoint(operation):
        source, start = (
            stablehlo.convert(ir.RankedTensorType.get(shape(value), wide), value) for value in operation.operands
        )
        reduced = stablehlo.ReduceOp(
            [ir.RankedTensorType.get(kind.shape, wide)], [source], [start], operation.attributes["dimensions"]
        )
        scalar = ir.RankedTensorType.get([], wide)
        block = reduced.body.blocks.append(scalar, scalar)
        with ir.InsertionPoint(block):
            stablehlo.return_([combine(*block.arguments)])
        result = stablehlo.convert(kind, reduced.results[0])
    replace(operation, result)


def _softmax_source(division: Any) -> Any | None:
    powers = producer(division.operands[0], "exponential")
    if powers is None or not _is_row_sum(row_of(division.operands[1]), powers.results[0]):
        return None
    return _shifted(powers.operands[0])


def _log_softmax_source(subtraction: Any) -> Any | None:
    shifted = subtraction.operands[0]
    spread = producer(subtraction.operands[1], "broadcast_in_dim")
    logarithm = None if spread is None else producer(spread.operands[0], "log")
    if spread is None or logarithm is None:
        return None
    flat = producer(logarithm.operands[0], "reshape")
    total = flat.operands[0] if flat is not None else logarithm.operands[0]
    found = reduction(total)
    powers = None if found is None else producer(found.source, "exponential")
    if powers is None or powers.operands[0] != shifted or not _is_row_sum(total, powers.results[0]):
        return None
    if shape(spread.operands[0]) not in (shape(total), [*shape(total), 1]):
        return None
    return _shifted(shifted)


def _shifted(value: Any) -> Any | None:
    """Return ``x`` where ``value`` is ``x`` minus the largest element of its row."""
    shifted = producer(value, "subtract")
    if shifted is None:
        return None
    row = row_of(shifted.operands[1])
    found = None if row is None else reduction(row)
    last = len(shape(value)) - 1
    if found is None or found.kind != "maximum" or found.axes != [last] or found.source != shifted.operands[0]:
        return None
    return shifted.operands[0]


def _is_row_sum(value: Any, source: Any) -> bool:
    found = None if value is None else reduction(value)
    return (
        found is not None and found.kind == "add" and found.source == source and found.axes == [len(shape(source)) - 1]
    )


def _guard(division: Any, source: Any) -> Any | None:
    """Return the selection of zeros for rows of ``source`` that are all minus infinity, if nothing else uses them."""
    users = [use.owner for use in division.results[0].uses]
    if len(users) != 1 or users[0].operation.name != "stablehlo.select":
        return None
    selection = users[0].operation
    row = row_of(selection.operands[0])
    found = None if row is None else reduction(row)
    if found is None or found.kind != "and" or found.axes != [len(shape(source)) - 1]:
        return None
    comparison = producer(found.source, "compare")
    if comparison is None or "EQ" not in str(comparison.attributes["comparison_direction"]):
        return None
    same = comparison.operands[0] == source and splat(comparison.operands[1]) == float("-inf")
    return selection if same and splat(selection.operands[1]) == 0.0 else None


def _mean_of(values: Any, squares: Reduction) -> Any | None:
    """Return the mean that was subtracted to get ``values``, with axes of extent 1, or ``None``."""
    centred = producer(values, "subtract")
    spread = None if centred is None else producer(centred.operands[1], "broadcast_in_dim")
    division = None if spread is None else producer(spread.operands[0], "divide")
    if centred is None or division is None:
        return None
    total = division.operands[0]
    while (flat := producer(total, "reshape")) is not None:
        total = flat.operands[0]
    found = reduction(total)
    if found is None or found.kind != "add" or found.source != centred.operands[0] or found.axes != squares.axes:
        return None
    count = prod(shape(values)[axis] for axis in found.axes)
    return division.results[0] if splat(division.operands[1]) == count else None


def _narrow(value: Any) -> Any:
    """Return the narrower floats that ``value`` was converted from: the handler widens them itself."""
    converted = producer(value, "convert")
    if converted is not None and element(converted.operands[0]) in ("bf16", "f16"):
        return converted.operands[0]
    return value
