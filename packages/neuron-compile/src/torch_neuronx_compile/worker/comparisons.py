"""Comparisons of scalars in StableHLO, as torch orders them: inside of sorts, reductions and windows."""

from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo


def before(left: Any, right: Any, direction: str) -> Any:
    """Compare in one ``direction`` (``"GT"``, ``"LT"``), in an order in which NaN comes first."""
    compared = compare(left, right, direction)
    if not isinstance(left.type.element_type, ir.FloatType):
        return compared
    return stablehlo.or_(compared, stablehlo.and_(compare(left, left, "NE"), compare(right, right, "EQ")))


def greater(left: Any, right: Any) -> Any:
    """Compare in torch's order, in which NaN is the greatest."""
    return before(left, right, "GT")


def compare(left: Any, right: Any, direction: str) -> Any:
    """Compare in one ``direction`` (``"GT"``, ``"EQ"``, …), as the element type wants to be compared."""
    element = left.type.element_type
    if isinstance(element, ir.FloatType):
        kind = "FLOAT"
    else:
        kind = "UNSIGNED" if element.is_unsigned or element.width == 1 else "SIGNED"
    return stablehlo.compare(
        left,
        right,
        stablehlo.ComparisonDirectionAttr.get(direction),
        compare_type=stablehlo.ComparisonTypeAttr.get(kind),
    )
