"""Calls that say what they are, with their definition beside them: StableHLO composites. Runs in the worker.

A compiler that knows a composite takes it as a whole, any other its definition.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func

from torch_neuronx_compile.worker.builders import narrowed


def composite(
    name: str, call: Any, attributes: Mapping[str, ir.Attribute], define: Callable[[list[Any]], list[Any]]
) -> list[Any]:
    """Build the composite ``name`` with the operands of ``call``, in whose place it stands; return its results.

    ``define`` builds the results from operands; composites of equal signature and attributes share one definition.
    """
    operands, kinds = list(call.operands), [result.type for result in call.results]
    signature = ir.FunctionType.get([operand.type for operand in operands], kinds)
    described = ir.DictAttr.get(dict(attributes))
    symbol = f"{name}.{hashlib.sha256(f'{signature} {described}'.encode()).hexdigest()[:16]}"
    module: Any = call.parent.parent.regions[0].blocks[0]
    if all(ir.StringAttr(found.attributes["sym_name"]).value != symbol for found in module):
        with ir.InsertionPoint.at_block_begin(module):
            # The stubs show the generated class, not the one that jaxlib derives from it.
            function: Any = func.FuncOp(symbol, signature, visibility="private")  # type: ignore[call-arg]
            block = function.add_entry_block()
        with ir.InsertionPoint(block):
            results = define(list(block.arguments))
            func.ReturnOp([narrowed(result, kind) for result, kind in zip(results, kinds, strict=True)])
    made = ir.Operation.create(
        "stablehlo.composite",
        results=kinds,
        operands=operands,
        attributes={
            "name": ir.StringAttr.get(name),
            "composite_attributes": described,
            "decomposition": ir.FlatSymbolRefAttr.get(symbol),
            "version": ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 1),
        },
    )
    return list(made.results)
