"""Pooling: the largest element of each window, without its place where nobody asks for that."""

from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

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
    """Replace a search for the largest element of each window and its place, if the place is not used."""
    if len(operation.operands) != 4 or any(True for _ in operation.results[1].uses):
        return
    if _lines(operation.regions[0].blocks[0]) != _LARGEST_AND_ITS_PLACE:
        return
    values, start = operation.operands[0], operation.operands[2]
    scalar = start.type
    with ir.InsertionPoint(operation):
        made = ir.Operation.create(
            "stablehlo.reduce_window",
            results=[operation.results[0].type],
            operands=[values, start],
            attributes={name: operation.attributes[name] for name in operation.attributes},
            regions=1,
        )
    block = made.regions[0].blocks.append(scalar, scalar, arg_locs=[ir.Location.unknown()] * 2)
    with ir.InsertionPoint(block):
        stablehlo.return_([stablehlo.maximum(*block.arguments)])
    operation.results[0].replace_all_uses_with(made.results[0])
    operation.erase()


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
