"""Builds the program of an operator by tracing its function of jax arrays. Runs in the worker."""

import importlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func, stablehlo

from torch_neuronx_compile.worker.functions import FUNCTIONS

Arguments = Mapping[str, Any]
_DTYPES = {
    "i1": "bool", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "ui8": "uint8", "ui16": "uint16",
    "ui32": "uint32", "ui64": "uint64", "bf16": "bfloat16", "f16": "float16", "f32": "float32", "f64": "float64",
}  # fmt: skip


def build(call: Any, op: str, tensors: Sequence[str], constants: Arguments) -> Any:
    """Add the function of ``op`` to the call's module and return the results of calling it.

    ``tensors`` names the argument of each operand; several of a name that ends in ``[]`` are a list.
    """
    import jax  # half a second, and few graphs need it

    shapes = [_shape(operand.type) for operand in call.operands]
    # jax narrows int64 otherwise; it also writes Python's numbers in 64 bits then, so only where there is int64.
    with jax.enable_x64(any("64" in str(shape.dtype) for shape in shapes)):
        traced = jax.jit(partial(_call, _function(op), tuple(tensors), constants), keep_unused=True).trace(*shapes)
        # For a TPU jax lowers without calls of the libraries that it has on a CPU.
        program = str(traced.lower(lowering_platforms=("tpu",)).compiler_ir("stablehlo"))
    name, kinds = _adopt(call, program)
    called = func.CallOp(kinds, ir.FlatSymbolRefAttr.get(name), list(call.operands))
    outputs = list(called.operation.results)
    return [_as(output, result.type) for output, result in zip(outputs, call.results, strict=True)]


def _function(op: str) -> Any:
    module, _, name = FUNCTIONS[op].partition(":")
    return getattr(importlib.import_module(f"torch_neuronx_compile.worker.functions.{module}"), name)


def _call(function: Any, names: tuple[str, ...], constants: Arguments, *arrays: Any) -> tuple[Any, ...]:
    arguments: dict[str, Any] = dict(constants)
    for name, array in zip(names, arrays, strict=True):
        if name.endswith("[]"):
            arguments.setdefault(name.removesuffix("[]"), []).append(array)
        else:
            arguments[name] = array
    results = function(**arguments)
    return tuple(results) if isinstance(results, (tuple, list)) else (results,)


def _shape(kind: Any) -> Any:
    import jax
    from jax import numpy as jnp

    tensor = ir.RankedTensorType(kind)
    dtype = jnp.dtype(_DTYPES[str(tensor.element_type)])
    return jax.ShapeDtypeStruct(tuple(tensor.shape), dtype)  # type: ignore[no-untyped-call]


def _adopt(call: Any, program: str) -> tuple[str, list[Any]]:
    """Copy the functions of ``program`` in front of the module's; return the name and the result types of its main."""
    block = call.parent.parent.regions[0].blocks[0] if call.parent.name == "func.func" else None
    assert block is not None
    taken = {str(operation.attributes["sym_name"].value) for operation in block if "sym_name" in operation.attributes}
    number = len(taken)
    parsed = ir.Module.parse(program)
    main: tuple[str, list[Any]] | None = None
    with ir.InsertionPoint.at_block_begin(block):
        for operation in list(parsed.body):
            copied: Any = operation.operation.clone()
            name = str(copied.attributes["sym_name"].value)
            copied.attributes["sym_name"] = ir.StringAttr.get(f"traced_{number}_{name}")
            copied.attributes["sym_visibility"] = ir.StringAttr.get("private")
            for attribute in ("arg_attrs", "res_attrs"):
                if attribute in copied.attributes:
                    del copied.attributes[attribute]
            for inner in _walk(copied):
                if "callee" in inner.attributes:
                    callee = ir.FlatSymbolRefAttr(inner.attributes["callee"]).value
                    inner.attributes["callee"] = ir.FlatSymbolRefAttr.get(f"traced_{number}_{callee}")
            if name == "main":
                signature = ir.FunctionType(ir.TypeAttr(copied.attributes["function_type"]).value)
                main = f"traced_{number}_main", list(signature.results)
    assert main is not None
    return main


def _walk(operation: Any) -> list[Any]:
    return [
        found
        for region in operation.regions
        for block in region
        for child in block
        for found in (child.operation, *_walk(child.operation))
    ]


def _as(value: Any, kind: Any) -> Any:
    return value if value.type == kind else stablehlo.convert(kind, value)
