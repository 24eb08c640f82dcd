"""StableHLO to its canonical form: static, standard operations and documented custom calls only. Runs in the worker.

torch-mlir's bindings have no StableHLO builders, jaxlib's have, so a module goes from one library to the
other as text.
"""

import importlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from jaxlib.mlir import ir, passmanager
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
from jaxlib.mlir.dialects import chlo, stablehlo

from torch_neuronx_compile.worker import locations
from torch_neuronx_compile.worker.booleans import compare_unsigned
from torch_neuronx_compile.worker.expansions import EXPANSIONS
from torch_neuronx_compile.worker.functions import FUNCTIONS
from torch_neuronx_compile.worker.protocol import WorkerTaskError
from torch_neuronx_compile.worker.scalars import fold_scalars
from torch_neuronx_compile.worker.torch_to_stablehlo import ExternalCall
from torch_neuronx_compile.worker.traced import build

_STATIC = (
    "builtin.module(func.func(chlo-legalize-to-stablehlo,stablehlo-canonicalize-dynamism),"
    "stablehlo-refine-shapes,"
    "func.func(stablehlo-canonicalize-dynamism,stablehlo-legalize-deprecated-ops))"
)
_ALLOWED = ("stablehlo.", "func.")

# CHLO operations for which neuronx-cc documents a custom call: they would lose accuracy and speed in StableHLO alone.
DOCUMENTED_CALLS = {"chlo.erf": "AwsNeuronErf"}


def new_context() -> ir.Context:
    """Return a context that knows StableHLO and its passes."""
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context = ir.Context()
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    stablehlo.register_dialect(context)
    chlo.register_dialect(context)
    stablehlo.register_stablehlo_passes()
    return context


def make_static(
    module: str, calls: list[ExternalCall], custom_calls: dict[str, str], expansions: dict[str, str]
) -> str:
    """Return ``module`` with its external calls replaced, without CHLO and dynamic operations.

    ``custom_calls`` gives the custom-call target of each external operator that has no expansion, ``expansions`` the
    ``module:function`` of a plugin's. Raises
    :class:`WorkerTaskError` with what the passes say.
    """
    with new_context(), ir.Location.unknown():
        parsed = ir.Module.parse(module)
        _replace_external_calls(parsed, calls, custom_calls, expansions)
        for operation in list(walk(parsed)):
            if operation.name in DOCUMENTED_CALLS:
                _replace(operation, lambda op: call_documented(op, DOCUMENTED_CALLS[op.name]))
        try:
            passmanager.PassManager.parse(_STATIC).run(parsed.operation)
        except ir.MLIRError as error:
            raise WorkerTaskError("; ".join(found.message for found in error.error_diagnostics)) from None
        compare_unsigned(list(walk(parsed)))
        fold_scalars(list(walk(parsed)))
        return str(parsed.operation.get_asm(print_generic_op_form=True, enable_debug_info=locations.kept()))


def portable(module: str) -> bytes:
    """Return the portable artifact of a StableHLO module.

    Raises :class:`WorkerTaskError` that names what is not static StableHLO.
    """
    with new_context(), ir.Location.unknown():
        parsed = _finished(module)
        _check(parsed)
        version = stablehlo.get_version_from_compatibility_requirement(
            stablehlo.StablehloCompatibilityRequirement.WEEK_12
        )
        return bytes(stablehlo.serialize_portable_artifact(parsed, version))


def readable(module: str) -> str:
    """Return the text of what :func:`portable` serializes, with locations where the module has them."""
    with new_context(), ir.Location.unknown():
        return str(_finished(module).operation.get_asm(enable_debug_info=True))


def _finished(module: str) -> ir.Module:
    parsed = ir.Module.parse(module)
    for operation in list(walk(parsed)):
        if operation.name == "arith.constant":
            _replace(operation, lambda op: stablehlo.constant(op.attributes["value"]))
    _number_channels(parsed)
    return parsed


def _number_channels(module: ir.Module) -> None:
    """Give every collective that has a channel one of its own, in the order of the program."""
    found = [operation for operation in walk(module) if "channel_handle" in operation.attributes]
    for number, operation in enumerate(found, start=1):
        kind = stablehlo.ChannelHandle(operation.attributes["channel_handle"]).channel_type
        operation.attributes["channel_handle"] = stablehlo.ChannelHandle.get(number, kind)


def walk(root: Any) -> Iterator[Any]:
    """Visit every operation of a module or an operation, itself included, outer ones first."""
    pending = [root.operation]
    while pending:
        operation = pending.pop()
        yield operation
        pending.extend(
            child.operation for region in operation.regions for block in region for child in reversed(list(block))
        )


def call_documented(operation: Any, target: str) -> Any:
    """Build the custom call ``target`` with the operands and the result types of ``operation``."""
    return stablehlo.custom_call(
        [result.type for result in operation.results],
        list(operation.operands),
        call_target_name=target,
        has_side_effect=False,
        api_version=ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 2),
        backend_config=ir.StringAttr.get(""),
    )


def _replace(operation: Any, build: Callable[[Any], Any]) -> None:
    with ir.InsertionPoint(operation), operation.location:
        built = build(operation)
    values = list(built) if isinstance(built, (list, ir.OpResultList)) else [built]
    for old, new in zip(operation.results, values, strict=True):
        old.replace_all_uses_with(new)
    operation.erase()


def _replace_external_calls(
    module: ir.Module, calls: list[ExternalCall], custom_calls: dict[str, str], expansions: dict[str, str]
) -> None:
    for operation in list(walk(module)):
        if operation.name == "func.call":
            symbol = ir.FlatSymbolRefAttr(operation.attributes["callee"]).value
            call = calls[int(symbol.removeprefix("external_"))]
            if call.op in EXPANSIONS:
                _replace(operation, partial(EXPANSIONS[call.op], **call.constants))
            elif call.op in FUNCTIONS:
                _replace(operation, partial(build, op=call.op, tensors=call.tensors, constants=call.constants))
            elif call.op in expansions:
                _replace(operation, partial(_plugins_expansion, build=expansions[call.op], constants=call.constants))
            else:
                _replace(operation, partial(_custom_call, target=custom_calls[call.op], constants=call.constants))
    for operation in list(walk(module)):
        if operation.name == "func.func" and len(operation.regions[0].blocks) == 0:
            operation.erase()


def _plugins_expansion(operation: Any, build: str, constants: dict[str, Any]) -> Any:
    module, _, name = build.partition(":")
    try:
        return getattr(importlib.import_module(module), name)(operation, **constants)
    except NotImplementedError as error:
        raise WorkerTaskError(f"failed to legalize: {error}") from None


def _custom_call(operation: Any, target: str, constants: dict[str, Any]) -> Any:
    attributes = {name: attribute(value) for name, value in constants.items() if value is not None}
    return stablehlo.custom_call(
        [result.type for result in operation.results],
        list(operation.operands),
        call_target_name=target,
        api_version=ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 4),
        backend_config=ir.DictAttr.get(attributes),
    )


def attribute(value: Any) -> ir.Attribute:
    """Write a constant argument as an attribute of a custom call."""
    match value:
        case bool():
            return ir.BoolAttr.get(value)
        case int():
            return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)
        case float():
            return ir.FloatAttr.get(ir.F64Type.get(), value)
        case str():
            return ir.StringAttr.get(value)
        case list() if all(type(element) is int for element in value):
            return ir.DenseI64ArrayAttr.get(value)
    raise WorkerTaskError(f"takes {value!r}, which a custom call cannot carry")


def _check(module: ir.Module) -> None:
    for operation in walk(module):
        name = operation.name
        if name != "builtin.module" and not name.startswith(_ALLOWED):
            raise WorkerTaskError(f"failed to legalize operation {name!r}")
        for result in operation.results:
            if isinstance(result.type, ir.ShapedType) and not result.type.has_static_shape:
                raise WorkerTaskError(f"{name} has a result of dynamic shape, {result.type}")
