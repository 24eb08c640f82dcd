"""The task that compiles StableHLO with XLA:CPU. Runs in the worker."""

import importlib
from collections.abc import Mapping
from functools import cache
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from torch_neuronx_compile import _stub
from torch_neuronx_compile.compilers.emulator.documented_calls import EXPANSIONS
from torch_neuronx_compile.compilers.emulator.rewrite.calls import target_of
from torch_neuronx_compile.compilers.emulator.rewrite.pipeline import TARGETS, rewrite
from torch_neuronx_compile.compilers.emulator.rewrite.plugin_calls import PluginCall, rewrite_plugin_calls
from torch_neuronx_compile.compilers.emulator.rewrite.values import replace
from torch_neuronx_compile.compilers.emulator.steps import Steps, steps_of
from torch_neuronx_compile.worker.canonical import new_context, walk
from torch_neuronx_compile.worker.protocol import WorkerTaskError
from torch_neuronx_compile.xla_library import compile_options, xla_client

Tensor = tuple[str, list[int]]
"""Torch's name of a dtype, and a shape."""

_DTYPES = {
    "i1": "bool", "i8": "int8", "ui8": "uint8", "i16": "int16", "ui16": "uint16", "i32": "int32", "ui32": "uint32",
    "i64": "int64", "ui64": "uint64", "bf16": "bfloat16", "f16": "float16", "f32": "float32", "f64": "float64",
    "f8E4M3FN": "float8_e4m3fn", "f8E5M2": "float8_e5m2",
}  # fmt: skip


def compile_program(
    program: bytes,
    calls: Mapping[str, tuple[bool | str, tuple[int, ...]]],
    collectives: Mapping[str, str],
    stubs: Mapping[str, str],
) -> tuple[bytes, dict[str, list[Tensor]], list[str], Steps | None]:
    """Compile a canonical StableHLO artifact with XLA:CPU.

    ``calls`` says by target whether a registered custom call is ordered, or which of its attributes says so, and which
    operands it writes to; ``collectives`` gives the target of each collective operation, ``stubs`` the
    ``module:function`` of targets with a stub of their own. Returns the serialized executable, its inputs and outputs,
    the targets of plugins' handlers that it calls, and the steps of a small program. Raises :class:`WorkerTaskError`
    for what the emulator does not implement and for XLA's own errors.
    """
    registered = {target: PluginCall(ordered, tuple(mutates)) for target, (ordered, mutates) in calls.items()}
    with new_context() as context, ir.Location.unknown():
        module = stablehlo.deserialize_portable_artifact(context, program)
        for operation in list(walk(module)):
            target = target_of(operation)
            if target is not None and target not in registered:
                _implement(operation, target)
        tensors = _tensors(module)
        steps = steps_of(module)
        rewrite_plugin_calls(module, registered, collectives)
        rewrite(module)
        used = {target for target in map(target_of, walk(module)) if target is not None}
        text = str(module.operation.get_asm(enable_debug_info=False)).encode()
    plugins = sorted(used & (registered.keys() | set(collectives.values())))
    for target in plugins:
        _register_stub(target, stubs.get(target))
    client = _client()
    devices = xla_client.DeviceList(tuple(client.devices()[:1]))
    try:
        return bytes(client.compile_and_load(text, devices, compile_options()).serialize()), tensors, plugins, steps
    except xla_client.XlaRuntimeError as error:
        raise WorkerTaskError(f"XLA: {error}") from None


@cache
def _register_stub(target: str, stub: str | None) -> None:
    capsule = _stub.stub()
    if stub is not None:
        module, _, name = stub.partition(":")
        capsule = getattr(importlib.import_module(module), name)()
    xla_client.register_custom_call_target(target, capsule, platform="cpu", api_version=1)


@cache
def _client() -> Any:
    client = xla_client.make_cpu_client(asynchronous=False)
    for target in TARGETS:
        _register_stub(target, None)
    return client


def _tensors(module: ir.Module) -> dict[str, list[Tensor]]:
    functions = (operation for operation in walk(module) if operation.name == "func.func")
    main = next(found for found in functions if ir.StringAttr(found.attributes["sym_name"]).value == "main")
    signature = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)

    def describe(kind: ir.Type) -> Tensor:
        tensor = ir.RankedTensorType(kind)
        return _DTYPES[str(tensor.element_type)], list(tensor.shape)

    return {
        "inputs": [describe(kind) for kind in signature.inputs],
        "outputs": [describe(kind) for kind in signature.results],
    }


def _implement(call: Any, target: str) -> None:
    if target not in EXPANSIONS:
        raise WorkerTaskError(f"The emulator does not implement the custom call {target!r}")
    with ir.InsertionPoint(call):
        results = EXPANSIONS[target](call)
    replace(call, *results)
