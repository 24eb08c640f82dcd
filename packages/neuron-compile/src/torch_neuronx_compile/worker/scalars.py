"""Write scalars in the dtype in which they are used. Runs in the worker.

torch-mlir hands over every Python number as float64 or int64 and converts it in the program; the chip has neither.
"""

from typing import Any

from jaxlib.mlir import ir

from torch_neuronx_compile.worker.constants import splat


def fold_scalars(operations: list[Any]) -> None:
    """Replace conversions and reshapes of constants with one element by constants; ``operations`` are in order."""
    known: dict[Any, int | float] = {}
    for operation in operations:
        if operation.name in ("stablehlo.constant", "arith.constant"):
            value = _scalar(operation.attributes["value"])
            if value is not None:
                known[operation.results[0]] = value
        elif operation.name in ("stablehlo.convert", "stablehlo.reshape") and operation.operands[0] in known:
            value = known[operation.operands[0]]
            with ir.InsertionPoint(operation):
                folded = _constant(operation.results[0].type, value)
            if folded is not None:
                operation.results[0].replace_all_uses_with(folded)
                known[folded] = value
                operation.erase()


def _scalar(attribute: ir.Attribute) -> int | float | None:
    if not isinstance(attribute, (ir.DenseFPElementsAttr, ir.DenseIntElementsAttr)) or len(attribute) != 1:
        return None
    if isinstance(attribute, ir.DenseIntElementsAttr):
        integer: int = attribute[0]
        return integer
    # Indexing knows float32 and float64 only; one element is a splat, whose attribute has a value in every width.
    value: float = ir.FloatAttr(attribute.get_splat_value()).value
    return value


def _constant(kind: Any, value: int | float) -> Any:
    shaped = ir.RankedTensorType(kind)
    element = shaped.element_type
    whole = isinstance(element, ir.IntegerType) and type(value) is int and element.width > 1
    # A number that is cut to an integer, or a truth value, is rare, and left to the compiler.
    return splat(shaped, value) if whole or isinstance(element, ir.FloatType) else None
