"""Plugins' custom calls and collectives in the form in which their handlers take them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from torch_neuronx_compile.compilers.emulator.rewrite.calls import foreign_call, integer, numbers, target_of
from torch_neuronx_compile.compilers.emulator.rewrite.values import elements
from torch_neuronx_compile.worker.canonical import walk
from torch_neuronx_compile.worker.protocol import WorkerTaskError

COLLECTIVES = (
    "all_gather",
    "all_reduce",
    "all_to_all",
    "collective_broadcast",
    "collective_permute",
    "partition_id",
    "recv",
    "reduce_scatter",
    "replica_id",
    "send",
)
"""Operations that ask for other ranks; XLA runs those of one device without a word."""


@dataclass(frozen=True, slots=True)
class PluginCall:
    """What the worker knows of a registered custom call."""

    ordered: bool | str
    """``True``, ``False``, or the attribute that says which."""
    mutates: tuple[int, ...]

    def keeps_order(self, attributes: Mapping[str, Any]) -> bool:
        """Whether the call with these attributes keeps the order of the program."""
        return bool(attributes[self.ordered].value) if isinstance(self.ordered, str) else self.ordered


def rewrite_plugin_calls(module: ir.Module, calls: Mapping[str, PluginCall], collectives: Mapping[str, str]) -> None:
    """Turn the calls in ``calls`` and the operations in ``collectives`` into calls of XLA's typed foreign functions.

    Ordered ones form a chain of tokens: XLA:CPU runs calls that do not depend on each other in any order, and at
    once. Raises :class:`WorkerTaskError` for a collective without an implementation.
    """
    token: Any = None
    for operation in list(walk(module)):
        name = operation.name.removeprefix("stablehlo.")
        target = target_of(operation)
        if target is not None:
            if target not in calls:
                continue
            call, carried = calls[target], _carried(operation)
        elif name in collectives:
            target, call, carried = collectives[name], PluginCall(ordered=True, mutates=()), _attributes(operation)
        elif name in COLLECTIVES:
            raise WorkerTaskError(
                f"The emulator has no implementation of the collective operation stablehlo.{name}: alone it would run "
                "as if there were no other ranks. Install torch-neuronx[dist]"
            )
        else:
            continue
        with ir.InsertionPoint(operation):
            if call.keeps_order(carried):
                token = _chain(operation, token)
                token = _replace(operation, target, call, carried, token)
            else:
                _replace(operation, target, call, carried, None)


def _carried(call: Any) -> dict[str, Any]:
    config = call.attributes.get("backend_config", None)
    if not isinstance(config, ir.DictAttr):
        return {}
    entries: Any = config
    return {found.name: found.attr for found in entries}


def _chain(operation: Any, token: Any) -> Any:
    if operation.parent.name != "func.func":
        raise WorkerTaskError(f"{operation.name} keeps the order of the program, and is inside a loop or a branch")
    return stablehlo.create_token() if token is None else token


def _replace(operation: Any, target: str, call: PluginCall, attributes: Mapping[str, Any], token: Any) -> Any:
    """Build the call in place of ``operation``: after ``token``, if there is one, and return its first result."""
    types, operands = [result.type for result in operation.results], list(operation.operands)
    first = 0
    if token is not None:
        types, operands, first = [token.type, *types], [token, *operands], 1
    results = foreign_call(
        target,
        types,
        operands,
        attributes,
        has_side_effect=token is not None,
        aliases=tuple((first + result, first + position) for result, position in enumerate(call.mutates)),
    )
    for old, new in zip(operation.results, results[first:], strict=True):
        old.replace_all_uses_with(new)
    operation.erase()
    return results[0] if token is not None else None


def _attributes(operation: Any) -> dict[str, Any]:
    """Write the attributes of a collective as those of a call."""
    found: dict[str, Any] = {"channel_id": integer(0), "use_global_device_ids": ir.BoolAttr.get(False)}
    for name in operation.attributes:
        value = operation.attributes[name]
        if name == "channel_handle":
            found["channel_id"] = integer(stablehlo.ChannelHandle(value).handle)
        elif name == "use_global_device_ids":
            found[name] = ir.BoolAttr.get(True)
        elif isinstance(value, ir.DenseIntElementsAttr):
            found[name] = numbers(elements(value))
            if name == "replica_groups":
                found["group_size"] = integer(list(ir.RankedTensorType(value.type).shape)[1])
        elif isinstance(value, ir.IntegerAttr):
            found[name] = value
    if operation.regions:
        body = list(operation.regions[0].blocks[0].operations)
        if len(body) != 2:
            raise WorkerTaskError(f"{operation.name} reduces by more than one operation")
        found["reduction"] = ir.StringAttr.get(body[0].operation.name.removeprefix("stablehlo."))
    return found
