"""When calls run: what a program computes from its inputs alone, late in its course, would otherwise come first.

A backward graph computes activations once more just before it needs them. XLA:CPU computes whatever has its operands,
so it would hold those of all layers at once. And it hands half of what could run to another thread: with much of that,
the calls that the program is waiting for go there, away from the thread that has torch's threads.
"""

from math import prod
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from torch_neuronx_compile.compilers.emulator.rewrite.calls import after, foreign_call, target_of
from torch_neuronx_compile.compilers.emulator.rewrite.values import ELEMENTWISE, FLOATS, element, order_of, shape
from torch_neuronx_compile.worker.canonical import walk

_MOVES = frozenset({"stablehlo.slice", "stablehlo.transpose"})
"""Operations whose results a call gets as new memory anyway."""
_CHANGES = _MOVES | {"stablehlo.reshape"}


def pace(module: ir.Module, targets: tuple[str, ...]) -> None:
    """Let what depends on inputs alone wait for the call of ``targets`` before it in the program."""
    for function in (operation for operation in walk(module) if operation.name == "func.func"):
        _Pace(targets).hold(function)


class _Pace:
    def __init__(self, targets: tuple[str, ...]) -> None:
        self._targets = targets
        self._last: Any = None  # a result of the call before
        self._late: set[Any] = set()  # values that depend on a call
        self._held: dict[Any, Any] = {}  # inputs, as what follows a call reads them
        self._zeros: dict[tuple[Any, str], Any] = {}

    def hold(self, function: Any) -> None:
        """Go through the operations of ``function``."""
        for found in list(function.regions[0].blocks[0].operations):
            operation = found.operation
            called = target_of(operation) in self._targets
            if self._last is not None and self._fuses(operation):
                self._read_later(operation)
            waits = any(operand in self._late for operand in operation.operands)
            if called and self._last is not None and not waits and any(map(_has_several_elements, operation.results)):
                operation = after(operation, self._last)
            if called:
                self._last = operation.results[0]
            if called or waits:
                self._late.update(operation.results)

    def _fuses(self, operation: Any) -> bool:
        """Return whether a subtraction in front of ``operation`` costs no memory of its own."""
        if operation.name in ELEMENTWISE:
            return True
        made_anew = _CHANGES | ({"stablehlo.custom_call"} if operation.name in _MOVES else set())
        return operation.name in _CHANGES and all(
            use.owner.operation.name in ELEMENTWISE | made_anew for use in operation.results[0].uses
        )

    def _read_later(self, operation: Any) -> None:
        """Have ``operation`` read inputs minus a zero that comes after the last call, which changes no float."""
        for position, operand in enumerate(operation.operands):
            if (
                not isinstance(operand.owner, ir.Block)
                or element(operand) not in FLOATS
                or not _has_several_elements(operand)
            ):
                continue
            if operand not in self._held:
                with ir.InsertionPoint(operation):
                    kind, axes = ir.RankedTensorType(operand.type), ir.DenseI64ArrayAttr.get([])
                    zeros = stablehlo.broadcast_in_dim(kind, self._zero(element(operand), kind), axes)
                    self._held[operand] = stablehlo.subtract(operand, zeros)
                self._late.add(self._held[operand])
            operation.operands[position] = self._held[operand]

    def _zero(self, name: str, kind: Any) -> Any:
        key = (self._last, name)
        if key not in self._zeros:
            scalar = ir.RankedTensorType.get([], kind.element_type)
            (self._zeros[key],) = foreign_call(
                "neuron_wait", [scalar], [self._last], {}, operand_orders=[order_of(self._last)]
            )
        return self._zeros[key]


def _has_several_elements(value: Any) -> bool:
    return prod(shape(value)) > 1
