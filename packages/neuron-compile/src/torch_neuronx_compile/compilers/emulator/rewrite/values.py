"""Questions about values of a module: what made them, and where their elements lie."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import replace as replace_fields
from math import prod
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

UP_TO_FLOAT32 = ("f32", "bf16", "f16")
"""Floats that composites take into float32."""
FLOATS = (*UP_TO_FLOAT32, "f64")

Order = tuple[int, ...]
"""Axes of a tensor as they lie in memory, the outermost first."""


def producer(value: Any, name: str) -> Any | None:
    """Return the operation ``name`` that made ``value``, or ``None`` if another did."""
    owner = value.owner
    if isinstance(owner, ir.Block):
        return None
    return owner.operation if owner.name == f"stablehlo.{name}" else None


def shape(value: Any) -> list[int]:
    """Return the extents of a tensor."""
    return list(ir.RankedTensorType(value.type).shape)


def element(value: Any) -> str:
    """Return the element type of a tensor as MLIR spells it."""
    return str(ir.RankedTensorType(value.type).element_type)


def integers(attribute: Any) -> list[int]:
    """Return the numbers of a dense array attribute."""
    return list(ir.DenseI64ArrayAttr(attribute))


def elements(attribute: Any) -> list[int]:
    """Return the numbers of a dense attribute of integers, in rows."""
    return [int(number) for number in attribute]


def splat(value: Any) -> float | None:
    """Return the one number that every element of ``value`` is, or ``None`` if that is not plain."""
    while (widened := producer(value, "broadcast_in_dim") or producer(value, "reshape")) is not None:
        value = widened.operands[0]
    constant = producer(value, "constant")
    if constant is None:
        return None
    dense = constant.attributes["value"]
    if isinstance(dense, (ir.DenseFPElementsAttr, ir.DenseIntElementsAttr)) and dense.is_splat:
        number: Any = dense.get_splat_value()
        return float(number.value)
    return None


@dataclass(frozen=True, slots=True)
class View:
    """Elements of the tensor ``base``, in another order or fewer of them; numbers count elements."""

    base: Any
    order: Order | None
    """That of ``base``; ``None``: row-major."""
    offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    def permuted(self, axes: list[int]) -> View:
        """Return the view with its axes in the order ``axes``."""
        sizes, strides = (tuple(numbers[axis] for axis in axes) for numbers in (self.sizes, self.strides))
        return replace_fields(self, sizes=sizes, strides=strides)

    def attribute(self) -> Any:
        """Write the view for a handler: the offset, then size and stride of each axis."""
        numbers = [number for axis in zip(self.sizes, self.strides, strict=True) for number in axis]
        return ir.DenseI64ArrayAttr.get([self.offset, *numbers])


def view_of(value: Any) -> View:
    """Look through transposes, reshapes and slices: XLA then need not carry them out."""
    if (made := producer(value, "transpose")) is not None:
        return view_of(made.operands[0]).permuted(integers(made.attributes["permutation"]))
    if (made := producer(value, "slice")) is not None:
        whole = view_of(made.operands[0])
        starts, steps = integers(made.attributes["start_indices"]), integers(made.attributes["strides"])
        moved = sum(start * stride for start, stride in zip(starts, whole.strides, strict=True))
        strides = tuple(step * stride for step, stride in zip(steps, whole.strides, strict=True))
        return replace_fields(whole, offset=whole.offset + moved, sizes=tuple(shape(value)), strides=strides)
    if (made := producer(value, "reshape")) is not None:
        whole = view_of(made.operands[0])
        reshaped = _restride(whole.sizes, whole.strides, tuple(shape(value)))
        if reshaped is not None:
            return replace_fields(whole, sizes=tuple(shape(value)), strides=reshaped)
    return whole_view(value, order_of(value))


def whole_view(value: Any, order: Order | None) -> View:
    """Return all of a tensor whose axes lie in ``order``."""
    sizes = tuple(shape(value))
    axes = tuple(range(len(sizes))) if order is None else order
    strides = {axis: prod(sizes[inner] for inner in axes[place + 1 :]) for place, axis in enumerate(axes)}
    return View(value, order, 0, sizes, tuple(strides[axis] for axis in range(len(sizes))))


ELEMENTWISE = frozenset(
    f"stablehlo.{name}"
    for name in (
        "abs", "add", "and", "ceil", "clamp", "compare", "convert", "cosine", "divide", "exponential",
        "exponential_minus_one", "floor", "is_finite", "log", "log_plus_one", "logistic", "maximum", "minimum",
        "multiply", "negate", "not", "or", "power", "remainder", "round_nearest_afz", "round_nearest_even", "rsqrt",
        "select", "sign", "sine", "sqrt", "subtract", "tanh", "xor",
    )
) | {"chlo.erf"}  # fmt: skip


def order_of(value: Any) -> Order | None:
    """Return the order in which the calls that ``value`` is computed from, element by element, write their results."""
    extents, seen, waiting = shape(value), set[Any](), [value]
    while waiting:
        found = waiting.pop()
        if found in seen or isinstance(found.owner, ir.Block) or shape(found) != extents:
            continue
        seen.add(found)
        owner = found.owner
        if owner.name == "stablehlo.custom_call":
            order = _written_order(owner, found)
            if order is not None:
                return order
        elif owner.name in ELEMENTWISE:
            waiting.extend(owner.operands)
    return None


def leaves(value: Any) -> bool:
    """Return whether ``value``, or what is computed from it element by element, is a result of the program."""
    extents, seen, waiting = shape(value), set[Any](), [value]
    while waiting:
        found = waiting.pop()
        if found in seen:
            continue
        seen.add(found)
        for use in found.uses:
            user = use.owner.operation
            if user.name == "func.return":
                return True
            if user.name in ELEMENTWISE and shape(user.results[0]) == extents:
                waiting.append(user.results[0])
    return False


def _written_order(call: Any, result: Any) -> Order | None:
    if "result_layouts" not in call.attributes:
        return None
    layouts: Any = ir.ArrayAttr(call.attributes["result_layouts"])
    innermost_first = elements(ir.DenseIntElementsAttr(layouts[list(call.results).index(result)]))
    order = tuple(reversed(innermost_first))
    return None if order == tuple(range(len(order))) else order


def _restride(sizes: tuple[int, ...], strides: tuple[int, ...], new: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the strides under which the same elements have the shape ``new``, or ``None`` where none do."""
    if prod(sizes) == 0:
        return None
    # Axes that lie one within the other count as one: each run is its number of elements and its innermost stride.
    axes = [(size, stride) for size, stride in zip(sizes, strides, strict=True) if size != 1]
    runs: list[tuple[int, int]] = []
    for size, stride in axes:
        if runs and runs[-1][1] == size * stride:
            runs[-1] = (runs[-1][0] * size, stride)
        else:
            runs.append((size, stride))
    result: list[int] = []
    left = 1  # of the current run, counted from the inside
    step = 0
    for extent in reversed(new):
        if extent == 1:
            result.append(0)
            continue
        if left == 1:
            if not runs:
                return None
            left, step = runs.pop()
        if left % extent:
            return None
        result.append(step)
        step *= extent
        left //= extent
    return tuple(reversed(result)) if left == 1 and not runs else None


def row_of(value: Any) -> Any | None:
    """Return the tensor without the last axis whose elements ``value`` repeats along it, or ``None``."""
    spread = producer(value, "broadcast_in_dim")
    if spread is None:
        return None
    source, rank = spread.operands[0], len(shape(value))
    axes = integers(spread.attributes["broadcast_dimensions"])
    if shape(source) == shape(value)[:-1] and axes == list(range(rank - 1)):
        return source
    if shape(source) == [*shape(value)[:-1], 1] and axes == list(range(rank)):
        flat = producer(source, "reshape")
        return flat.operands[0] if flat is not None and shape(flat.operands[0]) == shape(value)[:-1] else source
    return None


@dataclass(frozen=True, slots=True)
class Reduction:
    """One tensor reduced by one operation from its neutral element."""

    operation: Any
    kind: str
    source: Any
    axes: list[int]

    @property
    def trailing(self) -> bool:
        """Whether it reduces the last axes."""
        rank = len(shape(self.source))
        return sorted(self.axes) == list(range(rank - len(self.axes), rank))


_NEUTRAL = {"add": 0.0, "maximum": float("-inf"), "minimum": float("inf"), "and": 1.0}


def reduction(value: Any) -> Reduction | None:
    """Return the reduction that made ``value``, or ``None`` if it was something else."""
    made = producer(value, "reduce")
    if made is None or len(made.operands) != 2:
        return None
    body = list(made.regions[0].blocks[0].operations)
    kind = body[0].operation.name.removeprefix("stablehlo.")
    if len(body) != 2 or kind not in _NEUTRAL:
        return None
    start = splat(made.operands[1])
    if start is None or abs(start) != abs(_NEUTRAL[kind]) or (start != _NEUTRAL[kind] and kind != "and"):
        return None
    return Reduction(made, kind, made.operands[0], integers(made.attributes["dimensions"]))


def replace(operation: Any, *values: Any) -> None:
    """Let ``values`` stand for the results of ``operation``, which goes away."""
    for old, new in zip(operation.results, values, strict=True):
        old.replace_all_uses_with(new)
    operation.erase()


def reshaped(value: Any, like: Any) -> Any:
    """Return ``value`` with the shape of the tensor ``like``."""
    if shape(value) == shape(like):
        return value
    kind = ir.RankedTensorType.get(shape(like), ir.RankedTensorType(value.type).element_type)
    return stablehlo.reshape(kind, value)
