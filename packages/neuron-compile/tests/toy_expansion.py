"""What a toy plugin builds in the compile worker."""

from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo


def power(call: Any, name: str) -> Any:
    """Build a square or a cube of floating-point numbers."""
    (x,) = call.operands
    if not isinstance(x.type.element_type, ir.FloatType):
        raise NotImplementedError("only floating-point numbers have powers")
    squared = stablehlo.multiply(x, x)
    return stablehlo.multiply(squared, x) if name == "cube" else squared
