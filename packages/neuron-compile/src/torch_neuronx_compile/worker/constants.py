"""Tensors of one number. Runs in the worker.

They cross torch-mlir as calls: it folds some operators of constant tensors to wrong numbers, such as ``0.0 > 0``.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo


def splat(kind: Any, value: float | int) -> Any:
    """Build a constant of the type ``kind`` with one number everywhere, cut to the element type as PyTorch does."""
    element = kind.element_type
    if isinstance(element, ir.FloatType):
        scalar: ir.Attribute = ir.FloatAttr.get(element, float(value))
    elif element.width == 1:
        scalar = ir.BoolAttr.get(bool(value))
    else:
        scalar = ir.IntegerAttr.get(element, int(value))
    return stablehlo.constant(ir.DenseElementsAttr.get_splat(kind, scalar))


def _full(call: Any, fill_value: float | int, **_: Any) -> Any:
    return splat(ir.RankedTensorType(call.results[0].type), fill_value)


EXPANSIONS: dict[str, Callable[..., Any]] = {
    "aten.full": _full,
    "aten.full_like": _full,
    "aten.scalar_tensor": lambda call, s, **_: _full(call, s),
    **{f"aten.{name}": partial(_full, fill_value=0) for name in ("zeros", "zeros_like")},
    **{f"aten.{name}": partial(_full, fill_value=1) for name in ("ones", "ones_like")},
}
"""Builders by operator: they take the call and its constants by name and return the results."""
