"""Custom calls as XLA's typed foreign functions take them."""

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo


def foreign_call(
    target: str,
    results: Sequence[Any],
    operands: Sequence[Any],
    attributes: Mapping[str, Any],
    *,
    has_side_effect: bool = False,
    aliases: Sequence[tuple[int, int]] = (),
) -> list[Any]:
    """Build a call whose buffers are all row-major and return its results; tokens may be among both.

    ``aliases`` are pairs of a result and the operand whose memory it takes over: XLA copies what others still read.
    """
    call = stablehlo.CustomCallOp(
        list(results),
        list(operands),
        call_target_name=ir.StringAttr.get(target),
        has_side_effect=ir.BoolAttr.get(has_side_effect),
        api_version=ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 4),
        backend_config=ir.DictAttr.get(dict(attributes)),
        # Without them XLA chooses, for instance, the layout that makes a neighbouring transpose free.
        operand_layouts=_layouts([operand.type for operand in operands]),
        result_layouts=_layouts(results),
        output_operand_aliases=ir.ArrayAttr.get(
            [
                stablehlo.OutputOperandAlias.get([result] if len(results) > 1 else [], operand, [])
                for result, operand in aliases
            ]
        ),
    )
    return list(call.results)


def integer(value: int) -> Any:
    """Write a 64-bit number."""
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)


def numbers(values: Sequence[int]) -> Any:
    """Write a list of 64-bit numbers."""
    return ir.DenseI64ArrayAttr.get(list(values))


def _layouts(types: Sequence[Any]) -> Any:
    return ir.ArrayAttr.get([_layout(kind) for kind in types])


def _layout(kind: Any) -> Any:
    rank = ir.RankedTensorType(kind).rank if isinstance(kind, ir.RankedTensorType) else 0
    order: Any = array("q", range(rank - 1, -1, -1))
    return ir.DenseIntElementsAttr.get(order, type=ir.IndexType.get())
