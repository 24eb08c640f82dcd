"""Small programs as steps that ATen takes one by one. Runs in the worker.

XLA's way into a program costs more than a dozen calls of ATen on a few thousand elements. Only operations whose result
ATen gives with XLA's meaning are steps; a program with any other is XLA's.
"""

from collections.abc import Callable
from math import prod
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from torch_neuronx_compile.compilers.emulator.rewrite.values import FLOATS, element, integers, reduction, shape
from torch_neuronx_compile.worker.canonical import walk

MOST = 12
"""Calls of ATen up to which XLA is slower."""
LARGEST = 4096
"""Elements of every tensor of a small program: memory traffic between steps then does not count."""

Step = tuple[str, list[int], list[int]]
"""An operation as the runner names it, the numbers of its operands, and integers of its own."""
Steps = dict[str, list[Any]]
"""``constants``: dtype and number of each; ``steps``; ``results``: the number of each result. Inputs are numbered
first, then constants, then what steps make."""

_INTEGERS = {"i8": "int8", "ui8": "uint8", "i32": "int32", "i64": "int64"}
_DTYPES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16", "f64": "float64", "i1": "bool", **_INTEGERS}
_FLOATING = {
    "exponential": "exp", "exponential_minus_one": "expm1", "log": "log", "log_plus_one": "log1p", "tanh": "tanh",
    "logistic": "sigmoid", "sqrt": "sqrt", "rsqrt": "rsqrt", "sine": "sin", "cosine": "cos", "floor": "floor",
    "ceil": "ceil", "round_nearest_even": "round", "is_finite": "isfinite", "divide": "div", "power": "pow",
}  # fmt: skip
_NUMERIC = {
    "add": "add", "subtract": "sub", "multiply": "mul", "maximum": "maximum", "minimum": "minimum", "negate": "neg",
    "abs": "abs",
}  # fmt: skip
_BITWISE = {"and": "and", "or": "or", "xor": "xor", "not": "not"}
_REDUCTIONS = {"add": "sum", "maximum": "amax", "minimum": "amin"}


class _Unfit(Exception):
    """The program is not one of steps."""


def steps_of(module: ir.Module) -> Steps | None:
    """Return ``module`` as steps, or ``None`` where it is large, long, or has an operation that is no step."""
    functions = [operation for operation in walk(module) if operation.name == "func.func"]
    if len(functions) != 1:
        return None
    block = functions[0].regions[0].blocks[0]
    try:
        return _Writer(block).steps
    except _Unfit:
        return None


class _Writer:
    def __init__(self, block: Any) -> None:
        self._numbers: dict[Any, int] = {}
        self._scalars: set[int] = set()  # these have no axes, whatever the shape of the value that they stand for
        self._computed: set[int] = set()  # these have memory of their own
        self._constants: list[tuple[str, float | int]] = []
        self._made: list[Step] = []
        operations = [found.operation for found in block.operations]
        for argument in block.arguments:
            self._number(argument, len(self._numbers), scalar=not shape(argument))
        self._inputs = len(self._numbers)
        for operation in operations:
            if operation.name == "stablehlo.constant":
                self._constant(operation)
        self._first = self._inputs + len(self._constants)
        for operation in operations[:-1]:
            name = operation.name.removeprefix("stablehlo.")
            if name != "constant":
                if name not in _RULES or len(operation.results) != 1:
                    raise _Unfit
                _RULES[name](self, operation, name)
        if len(self._computed) > MOST:
            raise _Unfit
        results: list[int] = []
        for value in operations[-1].operands:
            number = self._numbers[value]
            owned = number in self._computed and (number in self._scalars) == (not shape(value))
            if not owned or number in results:
                self._made.append(("copy", [number], shape(value)))
                number = self._first + len(self._made) - 1
            results.append(number)
        self.steps: Steps = {"constants": self._constants, "steps": self._made, "results": results}

    def _constant(self, operation: Any) -> None:
        dense, result = operation.attributes["value"], operation.results[0]
        if not isinstance(dense, (ir.DenseFPElementsAttr, ir.DenseIntElementsAttr)) or not dense.is_splat:
            raise _Unfit
        number: Any = dense.get_splat_value()
        self._number(result, self._inputs + len(self._constants), scalar=True)
        self._constants.append((_DTYPES[element(result)], number.value))

    def _number(self, value: Any, number: int, *, scalar: bool) -> None:
        if element(value) not in _DTYPES or not 0 < prod(shape(value)) <= LARGEST:
            raise _Unfit
        self._numbers[value] = number
        if scalar:
            self._scalars.add(number)

    def _add(self, result: Any, name: str, operands: list[int], numbers: list[int], *, scalar: bool) -> int:
        self._made.append((name, operands, numbers))
        number = self._first + len(self._made) - 1
        self._number(result, number, scalar=scalar)
        return number

    def is_scalar(self, value: Any) -> bool:
        """Return whether what stands for ``value`` has no axes."""
        return self._numbers[value] in self._scalars

    def call(self, operation: Any, name: str, operands: list[Any], numbers: list[int] | None = None) -> None:
        """Add a step that computes."""
        result = operation.results[0]
        scalar = not shape(result) or all(self.is_scalar(value) for value in operands)
        values = [self._numbers[value] for value in operands]
        self._computed.add(self._add(result, name, values, numbers or [], scalar=scalar))

    def view(self, operation: Any, name: str, numbers: list[int]) -> None:
        """Add a step that looks at its operand in another way, or none: ATen repeats a single element by itself."""
        (operand,), result = operation.operands, operation.results[0]
        if self.is_scalar(operand):
            self._number(result, self._numbers[operand], scalar=True)
        else:
            self._add(result, name, [self._numbers[operand]], numbers, scalar=not shape(result))


def _elementwise(name: str, kinds: tuple[str, ...]) -> Callable[[_Writer, Any, str], None]:
    def rule(writer: _Writer, operation: Any, _: str) -> None:
        operands = list(operation.operands)
        if any(element(operand) not in kinds for operand in operands):
            raise _Unfit
        writer.call(operation, name, operands)

    return rule


def _compare(writer: _Writer, operation: Any, _: str) -> None:
    direction = str(stablehlo.ComparisonDirectionAttr(operation.attributes["comparison_direction"]).value)
    if "compare_type" in operation.attributes and "TOTALORDER" in str(operation.attributes["compare_type"]):
        raise _Unfit
    writer.call(operation, direction.lower(), list(operation.operands))


def _select(writer: _Writer, operation: Any, _: str) -> None:
    writer.call(operation, "where", list(operation.operands))


def _convert(writer: _Writer, operation: Any, _: str) -> None:
    """Numbers of floats that an integer cannot hold are the one conversion that is not alike."""
    source, result = element(operation.operands[0]), element(operation.results[0])
    if (source in FLOATS and result in _INTEGERS) or result not in _DTYPES:
        raise _Unfit
    writer.call(operation, f"to {_DTYPES[result]}", list(operation.operands))


def _reshape(writer: _Writer, operation: Any, _: str) -> None:
    writer.view(operation, "reshape", shape(operation.results[0]))


def _transpose(writer: _Writer, operation: Any, _: str) -> None:
    writer.view(operation, "permute", integers(operation.attributes["permutation"]))


def _slice(writer: _Writer, operation: Any, _: str) -> None:
    parts = (integers(operation.attributes[name]) for name in ("start_indices", "limit_indices", "strides"))
    writer.view(operation, "slice", [number for axis in zip(*parts, strict=True) for number in axis])


def _broadcast(writer: _Writer, operation: Any, _: str) -> None:
    """The numbers are the shape of the operand among the axes of the result, then the result's."""
    source, result = shape(operation.operands[0]), shape(operation.results[0])
    axes = integers(operation.attributes["broadcast_dimensions"])
    if axes != sorted(axes):
        raise _Unfit
    among = [source[axes.index(axis)] if axis in axes else 1 for axis in range(len(result))]
    writer.view(operation, "expand", [*among, *result])


def _reduce(writer: _Writer, operation: Any, _: str) -> None:
    found = reduction(operation.results[0])
    if found is None or found.kind not in _REDUCTIONS or element(found.source) not in FLOATS or not found.axes:
        raise _Unfit
    if writer.is_scalar(found.source):
        raise _Unfit
    writer.call(operation, _REDUCTIONS[found.kind], [found.source], found.axes)


_RULES: dict[str, Callable[[_Writer, Any, str], None]] = {
    **{name: _elementwise(torch_name, FLOATS) for name, torch_name in _FLOATING.items()},
    **{name: _elementwise(torch_name, (*FLOATS, *_INTEGERS)) for name, torch_name in _NUMERIC.items()},
    **{name: _elementwise(torch_name, ("i1", *_INTEGERS)) for name, torch_name in _BITWISE.items()},
    "compare": _compare,
    "select": _select,
    "convert": _convert,
    "reshape": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "broadcast_in_dim": _broadcast,
    "reduce": _reduce,
}
