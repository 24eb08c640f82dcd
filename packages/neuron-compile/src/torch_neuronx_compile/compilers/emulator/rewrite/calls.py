"""Custom calls as XLA's typed foreign functions take them."""

from array import array
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from torch_neuronx_compile.compilers.emulator.rewrite.values import Order, order_of


def foreign_call(
    target: str,
    results: Sequence[Any],
    operands: Sequence[Any],
    attributes: Mapping[str, Any],
    *,
    has_side_effect: bool = False,
    aliases: Sequence[tuple[int, int]] = (),
    operand_orders: Sequence[Order | None] = (),
    result_orders: Sequence[Order | None] = (),
) -> list[Any]:
    """Build a call and return its results; tokens may be among these and the operands.

    Buffers are row-major unless an order, outermost axis first, says otherwise. ``aliases`` are pairs of a result and
    the operand whose memory it takes over: XLA copies what others still read.
    """
    call = stablehlo.CustomCallOp(
        list(results),
        list(operands),
        call_target_name=ir.StringAttr.get(target),
        has_side_effect=ir.BoolAttr.get(has_side_effect),
        api_version=ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 4),
        backend_config=ir.DictAttr.get(dict(attributes)),
        # Without them XLA chooses, for instance, the layout that makes a neighbouring transpose free.
        operand_layouts=_layouts([operand.type for operand in operands], operand_orders),
        result_layouts=_layouts(results, result_orders),
        output_operand_aliases=ir.ArrayAttr.get(
            [
                stablehlo.OutputOperandAlias.get([result] if len(results) > 1 else [], operand, [])
                for result, operand in aliases
            ]
        ),
    )
    return list(call.results)


def target_of(operation: Any) -> str | None:
    """Return what a custom call calls; ``None`` for any other operation."""
    if operation.name != "stablehlo.custom_call":
        return None
    return str(ir.StringAttr(operation.attributes["call_target_name"]).value)


def after(call: Any, value: Any) -> Any:
    """Put in place of a foreign call the same one that starts when ``value`` is there; return it.

    Its handler gets ``value`` as one operand more, in whatever order it lies.
    """
    attributes = {name: call.attributes[name] for name in call.attributes}
    known: Any = ir.ArrayAttr(attributes["operand_layouts"])
    attributes["operand_layouts"] = ir.ArrayAttr.get([*known, _layout(value.type, order_of(value))])
    with ir.InsertionPoint(call):
        made = ir.Operation.create(
            call.name,
            results=[result.type for result in call.results],
            operands=[*call.operands, value],
            attributes=attributes,
        )
    for old, new in zip(call.results, made.results, strict=True):
        old.replace_all_uses_with(new)
    call.erase()
    return made


def integer(value: int) -> Any:
    """Write a 64-bit number."""
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)


def numbers(values: Sequence[int]) -> Any:
    """Write a list of 64-bit numbers."""
    return ir.DenseI64ArrayAttr.get(list(values))


def _layouts(types: Sequence[Any], orders: Sequence[Order | None]) -> Any:
    return ir.ArrayAttr.get([_layout(kind, order) for kind, order in zip_longest(types, orders)])


def _layout(kind: Any, order: Order | None) -> Any:
    rank = ir.RankedTensorType(kind).rank if isinstance(kind, ir.RankedTensorType) else 0
    innermost_first: Any = array("q", reversed(range(rank) if order is None else order))
    return ir.DenseIntElementsAttr.get(innermost_first, type=ir.IndexType.get())
