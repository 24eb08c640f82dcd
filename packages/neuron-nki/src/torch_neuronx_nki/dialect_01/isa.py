"""``neuronxcc.nki.isa`` as it was: instructions that return their result as a new tile."""

from typing import Any

import numpy as np
import torch

from torch_neuronx_nki import isa as current
from torch_neuronx_nki.dialect_01 import tiles
from torch_neuronx_nki.dialect_01.tiles import Tile, execute, fresh, operator_of
from torch_neuronx_nki.dtypes import float32
from torch_neuronx_nki.engines import Buffer, Engine, ReduceCmd
from torch_neuronx_nki.isa import (
    engine,
    get_nc_version,
    gpsimd_engine,
    nc_version,
    reduce_cmd,
    scalar_engine,
    tensor_engine,
    unknown_engine,
    vector_engine,
)


def nc_matmul(stationary: Tile, moving: Tile, *, mask: Any = None, **options: Any) -> Tile:
    """``stationary.T @ moving`` into a new tile of PSUM."""
    known = {name: value for name, value in options.items() if name in ("is_transpose", "perf_mode", "tile_position")}
    shape = (stationary.data[0].numel(), moving.data[0].numel())
    left, right = (Tile(tile.data, tile.codec, Buffer.sbuf) for tile in (stationary, moving))
    return execute(current.nc_matmul, shape, float32, left, right, buffer=Buffer.psum, mask=mask, **known)


def nc_transpose(data: Tile, *, mask: Any = None, dtype: Any = None, engine: Any = None, **_: Any) -> Tile:
    """Exchange partitions and elements."""
    made = fresh((data.data[0].numel(), data.shape[0]), dtype or data.dtype, Buffer.psum)
    made.assign(Tile(data.data.reshape(data.shape[0], -1).T, data.codec, data.buffer), None)
    return made


def activation(
    op: Any,
    data: Tile,
    *,
    bias: Any = None,
    scale: Any = 1.0,
    reduce_op: Any = None,
    reduce_res: Tile | None = None,
    reduce_cmd: ReduceCmd = ReduceCmd.idle,
    mask: Any = None,
    dtype: Any = None,
    **_: Any,
) -> Tile:
    """``op(data * scale + bias)``."""
    result = None if reduce_res is None else tiles.on_chip(reduce_res)
    made = execute(
        current.activation,
        data.shape,
        dtype or data.dtype,
        operator_of(op),
        data,
        bias=bias,
        scale=scale,
        reduce_op=None if reduce_op is None else operator_of(reduce_op),
        reduce_res=result,
        reduce_cmd=reduce_cmd,
        mask=mask,
    )
    _back(reduce_res, result)
    return made


def activation_reduce(
    op: Any, data: Tile, *, reduce_op: Any, reduce_res: Tile, bias: Any = None, scale: Any = 1.0, **options: Any
) -> Tile:
    """``op(data * scale + bias)``, and its sum in ``reduce_res``."""
    return activation(
        op,
        data,
        bias=bias,
        scale=scale,
        reduce_op=reduce_op,
        reduce_res=reduce_res,
        reduce_cmd=ReduceCmd.reset_reduce,
        **options,
    )


def _back(tile: Tile | None, result: Any) -> None:
    if tile is not None:
        tile.assign(Tile(result.data.reshape(tile.shape), result.codec, result.buffer))


def tensor_reduce(
    op: Any,
    data: Tile,
    axis: Any,
    *,
    mask: Any = None,
    dtype: Any = None,
    negate: bool = False,
    keepdims: bool = False,
    **_: Any,
) -> Tile:
    """Reduce over free dimensions."""
    return tiles.reduce(operator_of(op), data, axis, dtype, negate=negate, keepdims=keepdims, mask=mask)


def tensor_tensor(
    data1: Tile, data2: Tile, op: Any, *, dtype: Any = None, mask: Any = None, engine: Any = None, **_: Any
) -> Tile:
    """``data1 op data2``."""
    return tiles.binary(operator_of(op), data1, data2, dtype, mask)


def tensor_scalar(
    data: Tile,
    op0: Any,
    operand0: Any,
    reverse0: bool = False,
    op1: Any = None,
    operand1: Any = None,
    reverse1: bool = False,
    *,
    dtype: Any = None,
    mask: Any = None,
    engine: Any = Engine.unknown,
    **_: Any,
) -> Tile:
    """``(data op0 operand0) op1 operand1``."""
    return execute(
        current.tensor_scalar,
        data.shape,
        dtype or data.dtype,
        data,
        operator_of(op0),
        _scalar(operand0),
        reverse0=reverse0,
        op1=None if op1 is None else operator_of(op1),
        operand1=_scalar(operand1),
        reverse1=reverse1,
        mask=mask,
    )


def _scalar(operand: Any) -> Any:
    """Return one element per partition in float32, in which the current language wants it."""
    if isinstance(operand, Tile):
        wide = operand.codec.load(operand.data).reshape(operand.shape[0], -1)
        from torch_neuronx_nki.dtypes import codec

        return Tile(wide, codec(float32), Buffer.sbuf)
    return operand


def scalar_tensor_tensor(
    *,
    data: Tile,
    op0: Any,
    operand0: Any,
    op1: Any,
    operand1: Tile,
    reverse0: bool = False,
    reverse1: bool = False,
    dtype: Any = None,
    mask: Any = None,
    **_: Any,
) -> Tile:
    """``(data op0 operand0) op1 operand1``."""
    return execute(
        current.scalar_tensor_tensor,
        data.shape,
        dtype or data.dtype,
        data,
        operator_of(op0),
        _scalar(operand0),
        operator_of(op1),
        operand1,
        reverse0=reverse0,
        reverse1=reverse1,
        mask=mask,
    )


def tensor_scalar_reduce(
    *,
    data: Tile,
    op0: Any,
    operand0: Any,
    reduce_op: Any,
    reduce_res: Tile,
    reverse0: bool = False,
    dtype: Any = None,
    mask: Any = None,
    **_: Any,
) -> Tile:
    """``data op0 operand0``, and its reduction in ``reduce_res``."""
    result = tiles.on_chip(reduce_res)
    made = execute(
        current.tensor_scalar_reduce,
        data.shape,
        dtype or data.dtype,
        data,
        operator_of(op0),
        _scalar(operand0),
        operator_of(reduce_op),
        result,
        reverse0=reverse0,
        mask=mask,
    )
    _back(reduce_res, result)
    return made


def tensor_copy(src: Tile, *, mask: Any = None, dtype: Any = None, engine: Any = Engine.unknown, **_: Any) -> Tile:
    """Copy to a new tile."""
    return execute(current.tensor_copy, src.shape, dtype or src.dtype, src, engine=engine, mask=mask)


def reciprocal(data: Tile, *, dtype: Any = None, mask: Any = None, **_: Any) -> Tile:
    """``1 / data``."""
    return execute(current.reciprocal, data.shape, dtype or data.dtype, data, mask=mask)


def memset(shape: Any, value: Any, dtype: Any, *, mask: Any = None, engine: Any = Engine.unknown, **_: Any) -> Tile:
    """Make a tile of one value."""
    return execute(current.memset, shape, dtype, value, engine=engine, mask=mask)


def iota(expr: torch.Tensor, dtype: Any, *, mask: Any = None, **_: Any) -> Tile:
    """Make a tile of what an expression of indices gives."""
    made = fresh(tuple(expr.shape), dtype)
    made.assign(expr)
    made.mask = mask
    return made


def affine_select(
    pred: torch.Tensor, on_true_tile: Tile, on_false_value: float, *, mask: Any = None, dtype: Any = None, **_: Any
) -> Tile:
    """Keep elements where an expression of indices is true."""
    made = fresh(on_true_tile.shape, dtype or on_true_tile.dtype)
    made.assign(on_false_value)
    made.assign(Tile(on_true_tile.data, on_true_tile.codec, on_true_tile.buffer), pred)
    made.mask = mask
    return made


def bn_stats(data: Tile, *, mask: Any = None, dtype: Any = None, **_: Any) -> Tile:
    """Statistics of each partition, as groups of three."""
    return execute(current.bn_stats, (data.shape[0], 6), dtype or float32, data, mask=mask)


def bn_aggr(data: Tile, *, mask: Any = None, dtype: Any = None, **_: Any) -> Tile:
    """Mean and variance from groups of three."""
    return execute(current.bn_aggr, (data.shape[0], 2), dtype or float32, data, mask=mask)


def max8(src: Tile, *, mask: Any = None, dtype: Any = None, **_: Any) -> Tile:
    """The 8 largest elements of each partition."""
    return execute(current.max8, (src.shape[0], 8), dtype or src.dtype, src, mask=mask)


def tensor_tensor_scan(
    data0: Tile,
    data1: Tile,
    initial: Any,
    op0: Any,
    op1: Any,
    reverse0: bool = False,
    reverse1: bool = False,
    *,
    dtype: Any = None,
    mask: Any = None,
    **_: Any,
) -> Tile:
    """``r[i] = (data0[i] op0 r[i - 1]) op1 data1[i]``."""
    shape = np.broadcast_shapes(data0.shape, data1.shape)
    return execute(
        current.tensor_tensor_scan,
        shape,
        dtype or data0.dtype,
        data0.broadcast_to(shape),
        data1.broadcast_to(shape),
        _scalar(initial),
        operator_of(op0),
        operator_of(op1),
        reverse0=reverse0,
        reverse1=reverse1,
        mask=mask,
    )


def dma_copy(*, dst: Tile, src: Tile, mask: Any = None, **_: Any) -> None:
    """Copy between memories."""
    dst.assign(src, mask)


__all__ = [
    "engine",
    "get_nc_version",
    "gpsimd_engine",
    "nc_version",
    "reduce_cmd",
    "scalar_engine",
    "tensor_engine",
    "unknown_engine",
    "vector_engine",
]
