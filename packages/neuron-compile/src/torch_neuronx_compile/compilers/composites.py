"""Composites that no compiler takes as a whole: their definitions in their place. Runs in the worker."""

from typing import Any

from jaxlib.mlir import ir

from torch_neuronx_compile.worker.canonical import walk


def expand_composites(module: ir.Module) -> None:
    """Put the definition of every composite of ``main`` where it stands, and drop functions that nothing calls.

    MLIR's own inliner does not know StableHLO in jaxlib's build of it.
    """
    functions = {ir.StringAttr(found.attributes["sym_name"]).value: found.operation for found in module.body}
    main = functions["main"]
    while composites := [found for found in walk(main) if found.name == "stablehlo.composite"]:
        for composite in composites:
            _expand(composite, functions[_name(composite, "decomposition")])
    called, waiting = set[str](), ["main"]
    while waiting:
        called.add(waiting[-1])
        calls = (found for found in walk(functions[waiting.pop()]) if found.name == "func.call")
        waiting += {_name(found, "callee") for found in calls} - called
    for name in functions.keys() - called:
        functions[name].erase()


def _expand(composite: Any, definition: Any) -> None:
    block = definition.regions[0].blocks[0]
    standing: dict[Any, Any] = dict(zip(block.arguments, composite.operands, strict=True))
    *operations, end = (found.operation for found in block.operations)
    for operation in operations:
        copied = operation.clone(ip=ir.InsertionPoint(composite))
        for found in walk(copied):
            for position, operand in enumerate(found.operands):
                found.operands[position] = standing.get(operand, operand)
        standing.update(zip(operation.results, copied.results, strict=True))
    for old, new in zip(composite.results, end.operands, strict=True):
        old.replace_all_uses_with(standing[new])
    composite.erase()


def _name(operation: Any, attribute: str) -> str:
    return str(ir.FlatSymbolRefAttr(operation.attributes[attribute]).value)
