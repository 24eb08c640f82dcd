"""Tiles of the first dialect: arrays that are indexed with arrays, assigned to, and computed with by value.

A :class:`Tile` is a torch tensor over the memory of the kernel, in the order in which the kernel names the dimensions.
Instructions run as those of the current language, on tiles that are copied to where they are expected.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from torch_neuronx_nki import isa, ops
from torch_neuronx_nki.dtypes import Codec, Dtype, as_dtype
from torch_neuronx_nki.engines import Buffer
from torch_neuronx_nki.errors import NkiLaunchError, NkiTypeError
from torch_neuronx_nki.machine import Memory, current_core, row_of
from torch_neuronx_nki.ops import Operator
from torch_neuronx_nki.tensors import DynamicSlice, NkiTensor, unknown_dtype, whole


class PartitionDim(int):
    """``nl.par_dim(n)``: the dimension of ``n`` partitions; those before it count blocks."""


class Tile:
    """An array in one of the memories: all of it, or what an index names of it."""

    def __init__(
        self, data: torch.Tensor, how: Codec, buffer: Buffer, *, origin: NkiTensor | None = None, mask: Any = None
    ) -> None:
        self._data = data
        self.codec = how
        self.buffer = buffer
        self.origin = origin
        """The tensor that it is, where the kernel returns it."""
        self.mask = mask
        """The elements that are meant; None for all."""
        self.written: torch.Tensor | None = None
        """PSUM: which elements have been written; adding to one that has not overwrites it."""

    @property
    def data(self) -> torch.Tensor:
        """The elements, in their carrier."""
        return self._data

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes."""
        return tuple(self.data.shape)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self.data.dim()

    @property
    def dtype(self) -> Dtype:
        """Type of the elements."""
        return self.codec.dtype

    def assign(self, value: Any, mask: Any = None) -> None:
        """Write ``value``, converted and broadcast; only where ``mask`` is true."""
        values = _fitted(_as_carrier(value, self.codec), self.shape)
        where = mask if mask is not None else getattr(value, "mask", None)
        if where is not None:
            values = torch.where(where.expand(self.shape), values, self._data)
        self._data.copy_(values)
        if self.written is not None:
            self.written.fill_(True)

    def _sum(self, other: Any) -> "Tile":
        """Return ``self + other``, where ``self`` has been written, else ``other``."""
        total = binary(ops.add, self, other, self.dtype)
        if self.written is not None and not bool(self.written.all()):
            fresh_values = _fitted(_as_carrier(other, total.codec), total.shape)
            total._data = torch.where(self.written, total.data, fresh_values)
        return total

    def __getitem__(self, index: Any) -> "Tile":
        index = tuple(_plain(item) for item in (index if isinstance(index, tuple) else (index,)))
        if any(isinstance(item, torch.Tensor) for item in index):
            return Gathered(self, index)
        made = Tile(self.data[index], self.codec, self.buffer)
        made.written = None if self.written is None else self.written[index]
        return made

    def __setitem__(self, index: Any, value: Any) -> None:
        self[index].assign(value)

    def broadcast_to(self, shape: Sequence[int]) -> "Tile":
        """Repeat dimensions of size 1."""
        return Tile(self.data.expand(tuple(shape)), self.codec, self.buffer)

    def reshape(self, shape: Sequence[int]) -> "Tile":
        """View in another shape."""
        return Tile(self.data.reshape(tuple(shape)), self.codec, self.buffer, origin=self.origin)

    def view(self, dtype: Any) -> "Tile":
        """Read the bytes as another type of the same size."""
        from torch_neuronx_nki.dtypes import codec

        how = codec(dtype_of(dtype))
        return Tile(self.data.view(how.carrier), how, self.buffer)

    def __add__(self, other: Any) -> "Tile":
        return binary(ops.add, self, other)

    __radd__ = __add__

    def __iadd__(self, other: Any) -> "Tile":
        self.assign(self._sum(other))
        return self

    def __sub__(self, other: Any) -> "Tile":
        return binary(ops.subtract, self, other)

    def __isub__(self, other: Any) -> "Tile":
        self.assign(self - other)
        return self

    def __rsub__(self, other: Any) -> "Tile":
        return binary(ops.subtract, other, self)

    def __mul__(self, other: Any) -> "Tile":
        return binary(ops.multiply, self, other)

    __rmul__ = __mul__

    def __imul__(self, other: Any) -> "Tile":
        self.assign(self * other)
        return self

    def __truediv__(self, other: Any) -> "Tile":
        if isinstance(other, Tile):
            return self * unary(ops.reciprocal, other)
        return binary(ops.multiply, self, 1.0 / other)

    def __neg__(self) -> "Tile":
        return self * -1.0


class Gathered(Tile):
    """What arrays of indices name of a tile. Indices outside are those that a mask leaves out."""

    def __init__(self, parent: Tile, index: tuple[Any, ...]) -> None:
        shape = parent.data.shape
        if any(item is Ellipsis for item in index):
            at = next(position for position, item in enumerate(index) if item is Ellipsis)
            missing = len(shape) - len(index) + 1
            index = (*index[:at], *[slice(None)] * missing, *index[at + 1 :])
        arrays = []
        rank = max(item.dim() for item in index if isinstance(item, torch.Tensor))
        for dim, item in enumerate(index):
            if isinstance(item, slice):
                # a slice beside arrays is one more dimension, after theirs
                item = torch.arange(shape[dim])[item].reshape(-1, *[1] * (rank - 1 - dim) if dim < rank else [])
            arrays.append(torch.as_tensor(item))
        self.parent = parent
        shape_of_all = np.broadcast_shapes(*(tuple(array.shape) for array in arrays))
        self.index = tuple(array.expand(shape_of_all) for array in arrays)
        self.codec = parent.codec
        self.buffer = parent.buffer
        self.origin = None
        self.mask = None
        self.written = None
        self.inside = torch.ones(self.index[0].shape, dtype=torch.bool)
        for item, size in zip(self.index, shape, strict=False):
            self.inside &= (item >= 0) & (item < size)

    @property
    def data(self) -> torch.Tensor:
        """The elements, copied; outside of the parent, whatever is at its edge."""
        clamped = tuple(item.clamp(0, size - 1) for item, size in zip(self.index, self.parent.data.shape, strict=False))
        return self.parent.data[clamped]

    def assign(self, value: Any, mask: Any = None) -> None:
        """Write ``value`` to the parent; only where ``mask`` is true."""
        where = mask if mask is not None else getattr(value, "mask", None)
        chosen = self.inside if where is None else self.inside & where.expand(self.inside.shape)
        if where is None and not bool(self.inside.all()):
            raise IndexError(f"An index is outside of a tile of shape {self.parent.shape}. Pass a mask.")
        values = _fitted(_as_carrier(value, self.codec), tuple(self.inside.shape))
        self.parent.data[tuple(item[chosen] for item in self.index)] = values[chosen]


def _plain(item: Any) -> Any:
    if isinstance(item, DynamicSlice):
        return slice(int(item.start), int(item.start) + int(item.size))
    return item


def _as_carrier(value: Any, how: Codec) -> torch.Tensor:
    if isinstance(value, Tile):
        if value.codec is how:
            return value.data
        values = value.codec.load(value.data)
    else:
        values = torch.as_tensor(value, dtype=torch.float32)
    out = torch.empty(values.shape, dtype=how.carrier)
    how.save(out, values)
    return out


def _fitted(values: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Return ``values`` broadcast to ``shape``, or in it: an index may have dropped a dimension of size 1."""
    return values.reshape(shape) if values.numel() == math.prod(shape) else values.expand(shape)


def dtype_of(value: Any) -> Dtype:
    """Return the type that ``value`` names."""
    made = as_dtype(value)
    if made is None:
        raise unknown_dtype(value)
    return made


def of_tensor(tensor: NkiTensor) -> Tile:
    """Return a tensor of the kernel as a tile over the same memory."""
    if tensor.memory.flat is None:
        raise NkiLaunchError(
            "A kernel of the first dialect needs data to run. State the shapes of its results with register_fake."
        )
    return Tile(tensor.data, tensor.codec, tensor.buffer, origin=tensor)


def fresh(shape: Sequence[int], dtype: Any, buffer: Any = Buffer.sbuf, name: str = "") -> Tile:
    """Make an uninitialised tile. On chip, dimensions before ``par_dim`` count blocks, which are adjacent."""
    sizes = tuple(int(size) for size in shape)
    where = buffer if isinstance(buffer, Buffer) else Buffer.sbuf
    at = next((position for position, size in enumerate(shape) if isinstance(size, PartitionDim)), 0)
    if not where.on_chip:
        return of_tensor(whole(current_core().allocate(sizes, dtype_of(dtype), where, name)))
    order = (at, *(dim for dim in range(len(sizes)) if dim != at))
    laid_out = [sizes[dim] for dim in order]
    memory = current_core().allocate(laid_out if len(laid_out) > 1 else [*laid_out, 1], dtype_of(dtype), where, name)
    memory.room = None  # tiles hold its bytes, not it
    back = [order.index(dim) for dim in range(len(sizes))]
    made = Tile(whole(memory).data.view(laid_out).permute(back), memory.codec, where)
    if where is Buffer.psum:
        made.written = torch.zeros(laid_out, dtype=torch.bool).permute(back)
    return made


# Instructions by value ------------------------------------------------------------------------------------------------


def on_chip(value: Any, buffer: Buffer | None = None) -> Any:
    """Return a tile as a tensor of the current language, of two dimensions or more; other values as they are."""
    if not isinstance(value, Tile):
        return value
    data = value.data
    shape = tuple(data.shape) if data.dim() > 1 else (*data.shape, 1)
    where = buffer or (value.buffer if value.buffer.on_chip else Buffer.sbuf)
    flat = data.reshape(-1).contiguous() if data.is_contiguous() else data.contiguous().reshape(-1)
    row = row_of(shape)
    memory = Memory(next(current_core().launch.ids), "", where, value.codec, shape, row, row, flat=flat.clone())
    if current_core().observed:
        current_core().tell_allocation(memory, current_core().index)
    return whole(memory)


def execute(
    instruction: Callable[..., Any],
    shape: Sequence[int],
    dtype: Any,
    *operands: Any,
    buffer: Buffer = Buffer.sbuf,
    mask: Any = None,
    **parameters: Any,
) -> Tile:
    """Run ``instruction(dst, *operands, **parameters)`` and return ``dst`` as a tile."""
    sizes = tuple(shape) if len(shape) > 1 else (*shape, 1)
    memory = current_core().allocate(sizes, dtype_of(dtype), buffer)
    memory.room = None  # tiles hold its bytes, not it
    dst = whole(memory)
    instruction(dst, *map(on_chip, operands), **{name: on_chip(value) for name, value in parameters.items()})
    return Tile(dst.data.reshape(tuple(shape)), dst.codec, buffer, mask=mask)


def operator_of(op: Any) -> Operator:
    """Return the operator that ``op`` is, or that a function of NumPy has the name of."""
    if isinstance(op, Operator):
        return op
    name = getattr(op, "__name__", str(op))
    name = {"max": "maximum", "amax": "maximum", "min": "minimum", "amin": "minimum", "sum": "add"}.get(name, name)
    found = ops.OPERATORS.get({"true_divide": "divide", "absolute": "abs"}.get(name, name))
    if found is None:
        raise NkiTypeError(f"{op!r} is no operator of the language. Use one of nki.language, such as nl.add.")
    return found


def binary(op: Operator, x: Any, y: Any, dtype: Any = None, mask: Any = None) -> Tile:
    """``x op y`` with dimensions of size 1 repeated."""
    if isinstance(x, Tile) and isinstance(y, Tile):
        shape = np.broadcast_shapes(x.shape, y.shape)
        left, right = x.broadcast_to(shape), y.broadcast_to(shape)
        if left.buffer is right.buffer is Buffer.psum:
            right = Tile(right.data, right.codec, Buffer.sbuf)
        kind = dtype or _wider(x.dtype, y.dtype)
        return execute(isa.tensor_tensor, shape, kind, left, right, op=op, mask=mask)
    tile, number, reverse = (x, y, False) if isinstance(x, Tile) else (y, x, True)
    return execute(isa.tensor_scalar, tile.shape, dtype or tile.dtype, tile, op, number, reverse0=reverse, mask=mask)


def _wider(one: Dtype, other: Dtype) -> Dtype:
    if one == other:
        return one
    return one if one.itemsize >= other.itemsize else other


def unary(op: Operator, x: Tile, dtype: Any = None, mask: Any = None) -> Tile:
    """``op(x)``."""
    from torch_neuronx_nki.language import tiles

    def instruction(dst: NkiTensor, source: NkiTensor) -> None:
        isa.tensor_copy(dst, tiles.apply(op, source, dtype=dst.dtype))

    return execute(instruction, x.shape, dtype or x.dtype, x, mask=mask)


def reduce(op: Operator, x: Tile, axis: Any, dtype: Any, *, negate: bool, keepdims: bool, mask: Any) -> Tile:
    """Reduce over any free dimensions; elements that ``mask`` leaves out do not count."""
    rank = len(x.shape)
    dims = sorted(dim % rank for dim in ((axis,) if isinstance(axis, int) else axis))
    kept = [dim for dim in range(rank) if dim not in dims]
    data = x.data
    if mask is not None and op.identity is not None:
        edge = _as_carrier(op.identity, x.codec)
        data = torch.where(mask.expand(x.shape), data, edge)
    moved = Tile(data.permute(*kept, *dims), x.codec, x.buffer)
    shape = [x.shape[dim] for dim in kept]
    last = tuple(range(len(kept), rank))
    made = execute(isa.tensor_reduce, shape, dtype or x.dtype, op, moved, axis=last, negate=negate)
    if keepdims or len(shape) == 1:
        made = made.reshape([size if dim in kept else 1 for dim, size in enumerate(x.shape)])
    return made
