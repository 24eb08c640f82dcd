"""Torch dialect to StableHLO with torch-mlir. Runs in the worker."""

from dataclasses import dataclass
from typing import Any

from torch_mlir import ir, passmanager
from torch_mlir._mlir_libs import _stablehlo as stablehlo_dialect
from torch_mlir.dialects import torch as torch_dialect

from torch_neuronx_compile.worker import locations
from torch_neuronx_compile.worker.protocol import WorkerTaskError

_SIMPLIFY = "builtin.module(torchdynamo-export-to-torch-backend-pipeline)"
# torch-mlir's own pipeline for StableHLO without two of its passes: the contract check, which rejects the calls that
# external operators have become, and the CHLO legalization, which expands erf into a polynomial.
_CONVERT = (
    "builtin.module(func.func(convert-torch-to-stablehlo,convert-torch-to-arith,canonicalize,cse),"
    "torch-func-backend-type-conversion-for-stablehlo,func.func(canonicalize),"
    "func.func(torch-finalizing-backend-type-conversion-for-stablehlo),canonicalize,cse)"
)
_TIDY = "builtin.module(inline,symbol-dce,func.func(canonicalize,stablehlo-aggressive-simplification,canonicalize,cse))"
_EXTERNAL = "external_"


@dataclass(frozen=True, slots=True)
class ExternalCall:
    """One call of an operator that torch-mlir does not convert: what it is, and its arguments that are not tensors.

    ``tensors`` names the argument of each operand, with ``[]`` behind the name where the argument is a list.
    """

    op: str
    constants: dict[str, Any]
    tensors: tuple[str, ...]


def convert(torch_module: bytes, external: dict[str, list[str]]) -> tuple[str, list[ExternalCall]]:
    """Return the module as StableHLO and CHLO, and what its calls of ``@external_<i>`` stand for.

    ``external`` gives the argument names of each operator that must stay a call. Raises :class:`WorkerTaskError`
    with what the passes say.
    """
    context = ir.Context()
    torch_dialect.register_dialect(context)
    with context:
        module = ir.Module.parse(torch_module)
        calls = _outline(module, external)
        for pipeline in (_SIMPLIFY, _CONVERT):
            try:
                passmanager.PassManager.parse(pipeline).run(module.operation)
            except ir.MLIRError as error:
                raise _explain(error) from None
        leftover = _torch_operations(module)
        if leftover:
            raise WorkerTaskError(f"failed to legalize operation {leftover[0]!r}")
        return _text(module), calls


def tidy(module: str) -> str:
    """Return a StableHLO module without what is dead, constant or said twice; jaxlib's bindings lack these passes."""
    context = ir.Context()
    torch_dialect.register_dialect(context)
    stablehlo_dialect.register_dialect(context)
    with context:
        parsed = ir.Module.parse(module)
        passmanager.PassManager.parse(_TIDY).run(parsed.operation)
        return _text(parsed)


def _text(module: ir.Module) -> str:
    """Write ``module`` for another version of MLIR: the generic form, unlike bytecode, is the same in all of them."""
    return str(module.operation.get_asm(print_generic_op_form=True, enable_debug_info=locations.kept()))


def _outline(module: ir.Module, external: dict[str, list[str]]) -> list[ExternalCall]:
    """Turn the operators in ``external`` into calls of private functions: those pass through every conversion."""
    calls: list[ExternalCall] = []
    found = [
        operation
        for function in module.body.operations
        for operation in _walk(function)
        if _operator_name(operation) in external
    ]
    for operation in found:
        name = _operator_name(operation)
        operands: list[Any] = []
        tensors: list[str] = []
        constants: dict[str, Any] = {}
        results = [value.type for value in operation.results]
        for argument, value in zip(external[name], operation.operands, strict=True):
            found_tensors, label = _tensors(value), argument
            if found_tensors is None:
                constants[argument] = _constant(value)
                continue
            if not _is_tensor(value):
                label = f"{argument}[]"
            operands += found_tensors
            tensors += [label] * len(found_tensors)
        symbol = f"{_EXTERNAL}{len(calls)}"
        calls.append(ExternalCall(name, constants, tuple(tensors)))
        location = operation.location
        with ir.InsertionPoint.at_block_begin(module.body), location:
            signature = ir.FunctionType.get([value.type for value in operands], results)
            ir.Operation.create(
                "func.func",
                attributes={
                    "sym_name": ir.StringAttr.get(symbol),
                    "function_type": ir.TypeAttr.get(signature),
                    "sym_visibility": ir.StringAttr.get("private"),
                },
                regions=1,
            )
        with ir.InsertionPoint(operation), location:
            call = ir.Operation.create(
                "func.call",
                results=results,
                operands=operands,
                attributes={"callee": ir.FlatSymbolRefAttr.get(symbol)},
            )
        for old, new in zip(operation.results, call.results, strict=True):
            old.replace_all_uses_with(new)
        operation.erase()
    return calls


def _walk(operation: Any) -> list[Any]:
    return [
        found
        for region in operation.regions
        for block in region
        for child in block.operations
        for found in (child.operation, *_walk(child.operation))
    ]


def _operator_name(operation: Any) -> str:
    """Return the operator behind an operation; torch-mlir has an operation of its own for some of them."""
    if operation.name == "torch.operator":
        return str(ir.StringAttr(operation.attributes["name"]).value).removeprefix("torch.")
    return str(operation.name).removeprefix("torch.")


def _is_tensor(value: Any) -> bool:
    return str(value.type).startswith("!torch.vtensor")


def _tensors(value: Any) -> list[Any] | None:
    """Return the tensors of an argument that is one or a list of some, else ``None``."""
    if _is_tensor(value):
        return [value]
    if value.owner.name == "torch.prim.ListConstruct":
        elements = list(value.owner.operands)
        if elements and all(map(_is_tensor, elements)):
            return elements
    return None


def _constant(value: Any) -> Any:
    """Return the Python value of an argument that the importer wrote as constants."""
    operation = value.owner
    match operation.name:
        case "torch.constant.none":
            return None
        case "torch.prim.ListConstruct":
            return [_constant(element) for element in operation.operands]
        case "torch.aten.Int.bool":  # a truth value where a number is wanted
            return int(_constant(operation.operands[0]))
        case "torch.constant.int":
            return ir.IntegerAttr(operation.attributes["value"]).value
        case "torch.constant.bool":
            return bool(ir.IntegerAttr(operation.attributes["value"]).value)
        case "torch.constant.float":
            return ir.FloatAttr(operation.attributes["value"]).value
        case "torch.constant.str" | "torch.constant.device":
            return ir.StringAttr(operation.attributes["value"]).value
    raise WorkerTaskError(f"takes an argument that is neither a tensor nor a constant ({operation.name})")


def _torch_operations(module: ir.Module) -> list[str]:
    return [
        operation.name.removeprefix("torch.")
        for function in module.body.operations
        for operation in _walk(function)
        if operation.name.startswith("torch.")
    ]


def _explain(error: ir.MLIRError) -> WorkerTaskError:
    messages = [diagnostic.message for diagnostic in error.error_diagnostics]
    return WorkerTaskError("; ".join(messages) or str(error))
