"""One unit to canonical StableHLO and its content key."""

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

from torch_neuronx import plugins
from torch_neuronx.lowerings import Expansion, Lowering
from torch_neuronx_compile import ops
from torch_neuronx_compile.failures import failed
from torch_neuronx_compile.lowering.diagnose import find_culprit
from torch_neuronx_compile.lowering.hlo_store import find_or_lower
from torch_neuronx_compile.progress import shown
from torch_neuronx_compile.unit import CompilationUnit, LoweredProgram
from torch_neuronx_compile.worker.client import Caller, WorkerError, worker
from torch_neuronx_compile.worker.functions import FUNCTIONS

CONSTANTS = frozenset(
    f"aten.{name}" for name in ("full", "full_like", "ones", "ones_like", "scalar_tensor", "zeros", "zeros_like")
)
"""ATen's makers of constant tensors. The worker makes them once torch-mlir is done: it would fold what is computed of
them, not always right."""

_BUILT_HERE = FUNCTIONS.keys() | CONSTANTS

STAGE = "the lowering to StableHLO"


def lower(unit: CompilationUnit, child: Caller | None = None) -> LoweredProgram:
    """Find the program of ``unit``, or lower it in the compile worker.

    Raises :class:`GraphCompilationError`, with the operator at fault where one can be found, whether the lowering
    refuses, raises, aborts or hangs.
    """
    child = child or worker()
    used = _registered(unit.graph)
    try:
        with shown("lowering", unit.name):
            program, made = find_or_lower(unit.name, unit.graph, used, lambda: lower_graph(unit.graph, child))
    except WorkerError as error:
        with shown("searching", unit.name):
            culprit = find_culprit(unit.graph, lambda graph: lower_graph(graph, child))
        node, reason = culprit or (None, error.reason)
        diagnostics = f"{error.reason}\n{error.diagnostics}"
        raise failed(unit.name, unit.graph, STAGE, reason, node=node, diagnostics=diagnostics) from None
    return LoweredProgram(unit, program, _key(program, used), made)


def fingerprints(graph: fx.Graph) -> dict[str, str]:
    """Return the fingerprints of the plugins' lowerings and expansions that ``graph`` uses, by operator."""
    return {lowering.op: lowering.fingerprint for lowering in _registered(graph)}


def lower_graph(graph: fx.Graph, child: Caller) -> bytes:
    """Return the canonical StableHLO of a prepared graph; raises :class:`WorkerError`."""
    program: bytes = child.call("torch_neuronx_compile.worker.lower:lower", **task_arguments(graph))
    return program


def task_arguments(graph: fx.Graph) -> dict[str, Any]:
    """Return what the worker's tasks in ``worker.lower`` take; raises :class:`WorkerError`."""
    from torch_neuronx_compile.lowering.importer import import_graph  # torch-mlir takes half a second

    external, used = _external(graph), _registered(graph)
    try:
        module = import_graph(graph)
    except Exception as error:  # the importer raises whatever it meets: assertions, NotImplementedError, KeyError
        raise WorkerError(f"cannot be imported into MLIR: {type(error).__name__}: {error}") from error
    return {
        "torch_module": module,
        "arguments": {_mlir_name(name): _argument_names(target) for name, target in external.items()},
        "custom_calls": {_mlir_name(found.op): found.custom_call for found in used if isinstance(found, Lowering)},
        "expansions": {_mlir_name(found.op): found.build for found in used if isinstance(found, Expansion)},
    }


def _key(program: bytes, used: tuple[Lowering | Expansion, ...]) -> str:
    digest = hashlib.sha256(program)
    for lowering in sorted(used, key=lambda lowering: lowering.op):
        digest.update(f"\0{lowering.op}\0{lowering.fingerprint}".encode())
    return digest.hexdigest()


def _targets(graph: fx.Graph) -> dict[str, torch._ops.OpOverload]:
    return {
        f"{node.target.namespace}::{node.target._opname}.{node.target._overloadname}": node.target
        for node in graph.nodes
        if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload)
    }


def _plugins_lowerings() -> Mapping[str, Lowering | Expansion]:
    manager = plugins.manager()
    return {**manager.lowerings(), **manager.expansions()}


def _registered(graph: fx.Graph) -> tuple[Lowering | Expansion, ...]:
    """Return the plugins' lowerings and expansions that ``graph`` uses."""
    registered = _plugins_lowerings()
    return tuple(registered[name] for name in _targets(graph) if name in registered)


def _external(graph: fx.Graph) -> dict[str, torch._ops.OpOverload]:
    """Return the operators of ``graph`` that cross torch-mlir as calls, for want of a conversion or of a right one."""
    registered = _plugins_lowerings()
    return {
        name: target
        for name, target in _targets(graph).items()
        if name in registered or target.namespace == ops.NAMESPACE or _mlir_name(name) in _BUILT_HERE
    }


def _argument_names(target: torch._ops.OpOverload) -> list[str]:
    return [argument.name for argument in target._schema.arguments]


def _mlir_name(name: str) -> str:
    """Spell ``ns::op.default`` as the importer does: ``ns.op``."""
    return name.replace("::", ".").removesuffix(".default")
