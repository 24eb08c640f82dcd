"""Comparisons of truth values and unsigned integers as StableHLO wants them. Runs in the worker."""

from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo


def compare_unsigned(operations: list[Any]) -> None:
    """Correct the comparisons that torch-mlir writes as signed, which XLA refuses."""
    for operation in operations:
        if operation.name == "stablehlo.compare":
            element = ir.RankedTensorType(operation.operands[0].type).element_type
            if isinstance(element, ir.IntegerType) and (element.width == 1 or element.is_unsigned):
                operation.attributes["compare_type"] = stablehlo.ComparisonTypeAttr.get("UNSIGNED")
