"""The task that compiles StableHLO with XLA:CPU. Runs in the worker."""

from functools import cache
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import chlo, stablehlo

from torch_neuronx_compile import _stub
from torch_neuronx_compile.compilers.emulator.rewrite.pipeline import TARGETS, rewrite
from torch_neuronx_compile.worker.canonical import DOCUMENTED_CALLS, new_context, walk
from torch_neuronx_compile.worker.protocol import WorkerTaskError
from torch_neuronx_compile.xla_library import xla_client

Tensor = tuple[str, list[int]]
"""Torch's name of a dtype, and a shape."""

_DTYPES = {
    "i1": "bool", "i8": "int8", "ui8": "uint8", "i16": "int16", "ui16": "uint16", "i32": "int32", "ui32": "uint32",
    "i64": "int64", "ui64": "uint64", "bf16": "bfloat16", "f16": "float16", "f32": "float32", "f64": "float64",
    "f8E4M3FN": "float8_e4m3fn", "f8E5M2": "float8_e5m2",
}  # fmt: skip
_CHLO = {target: name for name, target in DOCUMENTED_CALLS.items()}


def compile_program(program: bytes) -> tuple[bytes, dict[str, list[Tensor]]]:
    """Return the serialized XLA:CPU executable of a canonical StableHLO artifact, and its inputs and outputs.

    Raises :class:`WorkerTaskError` for a custom call that the emulator does not implement and for XLA's own errors.
    """
    with new_context() as context, ir.Location.unknown():
        module = stablehlo.deserialize_portable_artifact(context, program)
        for operation in list(walk(module)):
            if operation.name == "stablehlo.custom_call":
                _implement(operation)
        tensors = _tensors(module)
        rewrite(module)
        text = str(module.operation.get_asm(enable_debug_info=False)).encode()
    client = _client()
    devices = xla_client.DeviceList(tuple(client.devices()[:1]))
    try:
        return bytes(client.compile_and_load(text, devices, compile_options()).serialize()), tensors
    except xla_client.XlaRuntimeError as error:
        raise WorkerTaskError(f"XLA: {error}") from None


@cache
def _client() -> Any:
    client = xla_client.make_cpu_client(asynchronous=False)
    for target in TARGETS:
        xla_client.register_custom_call_target(target, _stub.stub(), platform="cpu", api_version=1)
    return client


def _tensors(module: ir.Module) -> dict[str, list[Tensor]]:
    main = next(operation for operation in walk(module) if operation.name == "func.func")
    signature = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)

    def describe(kind: ir.Type) -> Tensor:
        tensor = ir.RankedTensorType(kind)
        return _DTYPES[str(tensor.element_type)], list(tensor.shape)

    return {
        "inputs": [describe(kind) for kind in signature.inputs],
        "outputs": [describe(kind) for kind in signature.results],
    }


def compile_options() -> xla_client.CompileOptions:
    """Return the options under which programs are compiled and loaded."""
    options = xla_client.CompileOptions()
    # Without this XLA drops roundings to bfloat16 that the program asks for, and results drift from eager mode's.
    options.env_option_overrides = [("xla_allow_excess_precision", False)]
    return options


def _implement(call: Any) -> None:
    target = ir.StringAttr(call.attributes["call_target_name"]).value
    if target not in _CHLO:
        raise WorkerTaskError(f"The emulator does not implement the custom call {target!r}")
    with ir.InsertionPoint(call):
        builder = getattr(chlo, _CHLO[target].removeprefix("chlo."))
        call.results[0].replace_all_uses_with(builder(call.operands[0]))
    call.erase()
