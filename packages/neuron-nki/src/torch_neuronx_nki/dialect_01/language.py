"""``neuronxcc.nki.language`` as it was: indices as arrays, masks, ``par_dim``, loads and stores by value."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_neuronx_nki import isa, ops
from torch_neuronx_nki import language as current
from torch_neuronx_nki.dialect_01 import tiles
from torch_neuronx_nki.dialect_01.programs import num_programs, program_id, program_ndim
from torch_neuronx_nki.dialect_01.tiles import PartitionDim, Tile, binary, fresh, operator_of, reduce, unary
from torch_neuronx_nki.dtypes import (
    bfloat16,
    bool_,
    float8_e4m3,
    float8_e5m2,
    float16,
    float32,
    int8,
    int16,
    int32,
    tfloat32,
    uint8,
    uint16,
    uint32,
)
from torch_neuronx_nki.engines import Buffer
from torch_neuronx_nki.language.loops import (
    affine_range,
    ds,
    sequential_range,
    static_range,
    tile_size,
)

sbuf, psum, hbm, private_hbm, shared_hbm = Buffer.sbuf, Buffer.psum, Buffer.hbm, Buffer.hbm, Buffer.shared_hbm


class spmd_dim:
    """A dimension of a launch: ``count`` programs, spread over ``cores``."""

    def __init__(self, count: int, cores: Any = None) -> None:
        self.count, self.cores = count, cores


def nc(count: int) -> int:
    """Name a number of cores."""
    return count


def par_dim(size: int) -> PartitionDim:
    """Mark the dimension of partitions."""
    return PartitionDim(size)


def arange(*bounds: int) -> torch.Tensor:
    """Return an array of indices."""
    return torch.arange(*bounds)


class _Grid(tuple[torch.Tensor, ...]):
    """Arrays of indices, one per dimension, which are also ``p``, ``x``, ``y`` and ``z``."""

    @property
    def p(self) -> torch.Tensor:
        """Of the partition."""
        return self[0]

    @property
    def x(self) -> torch.Tensor:
        """Of the first free dimension."""
        return self[1]

    @property
    def y(self) -> torch.Tensor:
        """Of the second."""
        return self[2]

    @property
    def z(self) -> torch.Tensor:
        """Of the third."""
        return self[3]


class _MakeGrid:
    """``nl.mgrid[0:128, 0:512]``."""

    def __getitem__(self, slices: Any) -> _Grid:
        slices = slices if isinstance(slices, tuple) else (slices,)
        rank = len(slices)
        return _Grid(
            torch.arange(item.start or 0, item.stop, item.step or 1).reshape(
                [-1 if dim == position else 1 for dim in range(rank)]
            )
            for position, item in enumerate(slices)
        )


mgrid = _MakeGrid()


def ndarray(shape: Sequence[int], dtype: Any, *, buffer: Any = None, name: str = "", **_: Any) -> Tile:
    """Make an uninitialised tile."""
    return fresh(shape, dtype, buffer, name)


def full(shape: Sequence[int], fill_value: Any, dtype: Any, *, buffer: Any = None, name: str = "", **_: Any) -> Tile:
    """Make a tile of one value."""
    made = fresh(shape, dtype, buffer, name)
    made.assign(fill_value)
    return made


def zeros(shape: Sequence[int], dtype: Any, *, buffer: Any = None, name: str = "", **_: Any) -> Tile:
    """Make a tile of zeros."""
    return full(shape, 0, dtype, buffer=buffer, name=name)


def ones(shape: Sequence[int], dtype: Any, *, buffer: Any = None, name: str = "", **_: Any) -> Tile:
    """Make a tile of ones."""
    return full(shape, 1, dtype, buffer=buffer, name=name)


def zeros_like(x: Tile, dtype: Any = None, *, buffer: Any = None, name: str = "", **_: Any) -> Tile:
    """Make a tile of zeros of the shape of ``x``."""
    return zeros(x.shape, dtype or x.dtype, buffer=buffer, name=name)


def load(src: Tile, *, mask: Any = None, dtype: Any = None, **_: Any) -> Tile:
    """Copy from HBM to a new tile; what ``mask`` leaves out is uninitialised."""
    made = fresh(src.shape, dtype or src.dtype)
    made.assign(src, mask)
    made.mask = mask
    return made


def load_transpose2d(src: Tile, *, mask: Any = None, dtype: Any = None, **_: Any) -> Tile:
    """Copy a matrix from HBM to a new tile, transposed."""
    made = load(src, mask=mask, dtype=dtype)
    return Tile(made.data.T, made.codec, made.buffer)


def store(dst: Tile, value: Any, *, mask: Any = None, **_: Any) -> None:
    """Copy a tile to HBM; what ``mask`` leaves out stays."""
    dst.assign(value, mask)


def copy(src: Tile, *, mask: Any = None, dtype: Any = None, **_: Any) -> Tile:
    """Copy to a new tile."""
    return tiles.execute(isa.tensor_copy, src.shape, dtype or src.dtype, src, mask=mask)


def static_cast(x: Tile, dtype: Any) -> Tile:
    """Convert to another type."""
    return copy(x, dtype=dtype)


def matmul(x: Tile, y: Tile, *, transpose_x: bool = False, mask: Any = None, **_: Any) -> Tile:
    """``x @ y`` into a new tile of PSUM."""
    from torch_neuronx_nki.dialect_01.isa import nc_matmul

    return nc_matmul(x if transpose_x else Tile(x.data.T, x.codec, Buffer.sbuf), y, mask=mask)


def transpose(x: Tile, *, dtype: Any = None, mask: Any = None, **_: Any) -> Tile:
    """Exchange partitions and elements."""
    return copy(Tile(x.data.T, x.codec, x.buffer), dtype=dtype)


def broadcast_to(x: Tile, *, shape: Sequence[int], **_: Any) -> Tile:
    """Repeat dimensions of size 1."""
    return x.broadcast_to(shape)


def expand_dims(x: Tile, axis: int) -> Tile:
    """Put a dimension of size 1 at ``axis``."""
    return Tile(x.data.unsqueeze(axis), x.codec, x.buffer)


def where(condition: Tile, x: Any, y: Any, *, dtype: Any = None, mask: Any = None, **_: Any) -> Tile:
    """``x`` where ``condition`` is not 0, else ``y``."""
    kind = dtype or next((value.dtype for value in (x, y) if isinstance(value, Tile)), float32)
    made = fresh(condition.shape, kind)
    made.assign(y)
    made.assign(x, condition.codec.load(condition.data) != 0)
    return made


def _two(op: ops.Operator) -> Callable[..., Tile]:
    def call(x: Any, y: Any, *, dtype: Any = None, mask: Any = None, **_: Any) -> Tile:
        if op is ops.divide and isinstance(y, Tile):
            return binary(ops.multiply, x, unary(ops.reciprocal, y), dtype, mask)
        if op is ops.divide:
            return binary(ops.multiply, x, 1.0 / y, dtype, mask)
        return binary(op, x, y, dtype, mask)

    return _named(call, op)


def _one(op: ops.Operator) -> Callable[..., Tile]:
    def call(x: Tile, *, dtype: Any = None, mask: Any = None, **_: Any) -> Tile:
        return unary(op, x, dtype, mask)

    return _named(call, op)


def _over(op: ops.Operator, name: str) -> Callable[..., Tile]:
    def call(x: Tile, axis: Any, *, dtype: Any = None, mask: Any = None, keepdims: bool = False, **_: Any) -> Tile:
        return reduce(op, x, axis, dtype, negate=False, keepdims=keepdims, mask=mask)

    named = _named(call, op)
    named.__name__ = name
    return named


def _named(call: Callable[..., Tile], op: ops.Operator) -> Callable[..., Tile]:
    call.__name__ = op.name
    call.__doc__ = f"Compute nl.{op.name} into a new tile."
    return call


add, subtract, multiply = _two(ops.add), _two(ops.subtract), _two(ops.multiply)
maximum, minimum, divide, power = _two(ops.maximum), _two(ops.minimum), _two(ops.divide), _two(ops.power)
equal, not_equal, less, less_equal = _two(ops.equal), _two(ops.not_equal), _two(ops.less), _two(ops.less_equal)
greater, greater_equal = _two(ops.greater), _two(ops.greater_equal)
logical_and, logical_or = _two(ops.logical_and), _two(ops.logical_or)
exp, log, sqrt, rsqrt, square = _one(ops.exp), _one(ops.log), _one(ops.sqrt), _one(ops.rsqrt), _one(ops.square)
tanh, sigmoid, relu, gelu, silu = _one(ops.tanh), _one(ops.sigmoid), _one(ops.relu), _one(ops.gelu), _one(ops.silu)
sin, cos, abs, negative = _one(ops.sin), _one(ops.cos), _one(ops.abs), _one(ops.negative)
reciprocal, softplus, erf, sign = _one(ops.reciprocal), _one(ops.softplus), _one(ops.erf), _one(ops.sign)
sum, max, min = _over(ops.add, "sum"), _over(ops.maximum, "max"), _over(ops.minimum, "min")
prod = _over(ops.multiply, "prod")


def mean(x: Tile, axis: Any, *, dtype: Any = None, mask: Any = None, keepdims: bool = False, **_: Any) -> Tile:
    """Mean over free dimensions."""
    total = reduce(ops.add, x, axis, float32, negate=False, keepdims=keepdims, mask=mask)
    return binary(ops.multiply, total, total.data.numel() / x.data.numel(), dtype or x.dtype)


def softmax(x: Tile, axis: int = -1, *, dtype: Any = None, mask: Any = None, **_: Any) -> Tile:
    """Softmax over one dimension."""
    powers = exp(x - max(x, axis, keepdims=True, mask=mask), dtype=float32)
    return copy(powers / sum(powers, axis, keepdims=True, mask=mask), dtype=dtype or x.dtype, mask=mask)


def shared_constant(value: Any, dtype: Any = None, **_: Any) -> Tile:
    """Make a tile of HBM of an array."""
    return tiles.of_tensor(current.shared_constant(value, dtype))


def device_print(prefix: str, x: Any, **_: Any) -> None:
    """Print a tile when it is executed."""
    print(prefix, x.codec.load(x.data) if isinstance(x, Tile) else x)


__all__ = [
    "affine_range",
    "bfloat16",
    "bool_",
    "ds",
    "float8_e4m3",
    "float8_e5m2",
    "float16",
    "float32",
    "int8",
    "int16",
    "int32",
    "num_programs",
    "operator_of",
    "program_id",
    "program_ndim",
    "sequential_range",
    "static_range",
    "tfloat32",
    "tile_size",
    "uint8",
    "uint16",
    "uint32",
]
