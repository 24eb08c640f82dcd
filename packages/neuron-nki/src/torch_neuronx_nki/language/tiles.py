"""Functions of ``nki.language`` that make tiles: allocation, loads and stores, arithmetic by value."""

from collections.abc import Sequence
from typing import Any

import torch

from torch_neuronx_nki import dtypes, isa, ops
from torch_neuronx_nki.dtypes import Dtype, as_dtype
from torch_neuronx_nki.engines import Buffer, Engine
from torch_neuronx_nki.errors import NkiTypeError
from torch_neuronx_nki.machine import current_core, violation
from torch_neuronx_nki.ops import Operator, OperatorKind
from torch_neuronx_nki.registers import NkiScalar
from torch_neuronx_nki.tensors import NkiTensor, unknown_dtype, view_of, whole

_BUFFERS = {str(buffer): buffer for buffer in Buffer} | {"hbm": Buffer.hbm}


def _dtype(value: Any) -> Dtype:
    made = as_dtype(value)
    if made is None:
        raise unknown_dtype(value)
    return made


def _buffer(value: Any) -> Buffer:
    if isinstance(value, Buffer):
        return value
    core = current_core()
    if isinstance(value, str) and value in _BUFFERS and core.options.language < (0, 3):
        return _BUFFERS[value]
    raise violation(
        "buffer",
        f"nl.ndarray: buffer is {value!r}",
        limit="nl.sbuf, nl.psum, nl.hbm, nl.private_hbm, nl.shared_hbm",
        actual=value,
        advice="Pass one of the constants of nki.language.",
    )


def ndarray(
    shape: Sequence[int],
    dtype: Any,
    buffer: Any = Buffer.sbuf,
    name: str = "",
    address: tuple[int, int] | None = None,
) -> NkiTensor:
    """Allocate a tensor, uninitialised: in SBUF unless ``buffer`` says otherwise.

    ``address`` is (first partition, first byte in a partition) for a tensor that the program places itself.
    """
    core = current_core()
    return whole(core.allocate(shape, _dtype(dtype), _buffer(buffer), name, address))


def _filled(shape: Sequence[int], dtype: Any, buffer: Any, name: str, value: float) -> NkiTensor:
    tile = ndarray(shape, dtype, buffer, name)
    if tile.on_chip:
        isa.memset(tile, value)
        return tile
    if tile.memory.flat is not None:
        tile.codec.save(tile.data, torch.full(tile.shape, float(value)))
    tile.memory.watched = None  # holds values, which no instruction has written
    return tile


def zeros(shape: Sequence[int], dtype: Any, buffer: Any = Buffer.sbuf, name: str = "") -> NkiTensor:
    """Allocate a tensor of zeros."""
    return _filled(shape, dtype, buffer, name, 0)


def ones(shape: Sequence[int], dtype: Any, buffer: Any = Buffer.sbuf, name: str = "") -> NkiTensor:
    """Allocate a tensor of ones."""
    return _filled(shape, dtype, buffer, name, 1)


def full(shape: Sequence[int], fill_value: Any, dtype: Any, buffer: Any = Buffer.sbuf, name: str = "") -> NkiTensor:
    """Allocate a tensor of one value."""
    return _filled(shape, dtype, buffer, name, fill_value)


def zeros_like(x: NkiTensor, dtype: Any = None, buffer: Any = None, name: str = "") -> NkiTensor:
    """Allocate zeros of the shape of ``x``."""
    return zeros(x.shape, dtype or x.dtype, buffer or x.buffer, name)


def empty_like(x: NkiTensor, dtype: Any = None, buffer: Any = None, name: str = "") -> NkiTensor:
    """Allocate a tensor of the shape of ``x``, uninitialised."""
    return ndarray(x.shape, dtype or x.dtype, buffer or x.buffer, name)


def load(src: NkiTensor, dtype: Any = None) -> NkiTensor:
    """Copy a tensor of HBM to a new tile of SBUF."""
    tile = ndarray(src.shape if len(src.shape) > 1 else (1, *src.shape), dtype or src.dtype)
    isa.dma_copy(tile, src)
    return tile


def store(dst: NkiTensor, value: NkiTensor) -> None:
    """Copy a tile of SBUF to HBM."""
    if value.buffer is Buffer.psum:
        value = copy(value)
    isa.dma_copy(dst, value)


def load_transpose2d(src: NkiTensor, dtype: Any = None) -> NkiTensor:
    """Copy a matrix of HBM to a new tile of SBUF, transposed."""
    tile = ndarray((src.shape[1], src.shape[0]), dtype or src.dtype)
    isa.dma_copy(tile, view_of(src.memory, tile.shape, src.strides[::-1], src.offset, src.codec, src.indirection))
    return tile


def copy(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """Copy a tile to a new one in SBUF."""
    tile = ndarray(x.shape, dtype or x.dtype)
    isa.tensor_copy(tile, x)
    return tile


# Arithmetic by value --------------------------------------------------------------------------------------------------


def apply(op: Operator, *args: Any, dtype: Any = None, **kwargs: Any) -> NkiTensor:
    """Compute ``op`` into a new tile of SBUF: what calling an operator does."""
    if op is ops.copy:
        return copy(args[0], dtype)
    if kwargs:
        raise NkiTypeError(f"{op!r} does not take {', '.join(kwargs)}.")
    x = args[0]
    if op.kind is OperatorKind.ACTIVATION or op is ops.invert:
        return _unary(op, x, dtype)
    y = args[1]
    if type(x) is not NkiTensor:
        tile = ndarray(y.shape, dtype or y.dtype)
        isa.tensor_scalar(tile, y, op, x, reverse0=True)
        return tile
    tile = ndarray(x.shape, dtype or x.dtype)
    if op in ops.WITHOUT_HARDWARE:
        _composed(op, tile, x, y)
    elif type(y) is NkiTensor and not (y.shape[1:] == (1,) and x.shape[1:] != (1,)):
        isa.tensor_tensor(tile, x, y, op)
    else:
        isa.tensor_scalar(tile, x, op, y)
    return tile


def _unary(op: Operator, x: NkiTensor, dtype: Any) -> NkiTensor:
    tile = ndarray(x.shape, dtype or x.dtype)
    if op is ops.invert:
        isa.tensor_scalar(tile, x, op, 0)
    elif op is ops.sin:
        _composed(_WHOLE_SINE, tile, x)
    elif op in ops.COMPOSED:
        _composed(op, tile, x)
    else:
        isa.activation(tile, op, x)
    return tile


_WHOLE_SINE = Operator("sin", OperatorKind.ACTIVATION, torch.sin)


def _composed(op: Operator, dst: NkiTensor, *operands: Any) -> None:
    """Compute what no instruction does by itself; to observers it is one activation."""
    isa.composed(dst, op, *operands)


def sum(x: NkiTensor, axis: Any, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    """Sum over the last dimensions ``axis``."""
    return _reduced(ops.add, x, axis, dtype, keepdims)


def prod(x: NkiTensor, axis: Any, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    """Multiply over the last dimensions ``axis``."""
    return _reduced(ops.multiply, x, axis, dtype, keepdims)


def max(x: NkiTensor, axis: Any, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    """Largest element over the last dimensions ``axis``."""
    return _reduced(ops.maximum, x, axis, dtype, keepdims)


def min(x: NkiTensor, axis: Any, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    """Smallest element over the last dimensions ``axis``."""
    return _reduced(ops.minimum, x, axis, dtype, keepdims)


def all(x: NkiTensor, axis: Any, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    """1.0 where all elements over the last dimensions ``axis`` are not 0."""
    return _reduced(ops.logical_and, x, axis, dtype, keepdims)


def mean(x: NkiTensor, axis: Any, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    """Mean over the last dimensions ``axis``."""
    total = _reduced(ops.add, x, axis, dtypes.float32, keepdims)
    tile = ndarray(total.shape, dtype or x.dtype)
    isa.tensor_scalar(tile, total, ops.multiply, total.size / x.size)
    return tile


def var(x: NkiTensor, axis: Any, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    """Variance over the last dimensions ``axis``."""
    average = mean(x, axis, dtypes.float32, keepdims)
    dims = _dims(x, axis)
    rows = average.reshape((*x.shape[: dims[0]], *[1] * len(dims)))
    spread = ndarray(x.shape, dtypes.float32)
    isa.tensor_tensor(spread, x, rows.broadcast_to(x.shape), ops.subtract)
    isa.tensor_tensor(spread, spread, spread, ops.multiply)
    return mean(spread, axis, dtype or x.dtype, keepdims)


def _dims(x: NkiTensor, axis: Any) -> tuple[int, ...]:
    rank = len(x.shape)
    return tuple(sorted(dim % rank for dim in ((axis,) if isinstance(axis, int) else axis)))


def _reduced(op: Operator, x: NkiTensor, axis: Any, dtype: Any, keepdims: bool) -> NkiTensor:
    dims = _dims(x, axis)
    kept = [size if dim not in dims else 1 for dim, size in enumerate(x.shape)]
    left = [size for dim, size in enumerate(x.shape) if dim not in dims]
    tile = ndarray(kept if keepdims or len(left) < 2 else left, dtype or x.dtype)
    isa.tensor_reduce(tile, op, x, axis)
    return tile


def softmax(x: NkiTensor, axis: Any = -1, dtype: Any = None) -> NkiTensor:
    """Softmax over the last dimension."""
    largest = ndarray((x.shape[0], 1), dtypes.float32)
    isa.tensor_reduce(largest, ops.maximum, x, axis, negate=True)
    tile, total = ndarray(x.shape, dtypes.float32), ndarray((x.shape[0], 1), dtypes.float32)
    isa.activation_reduce(tile, ops.exp, x, ops.add, total, bias=largest)
    isa.reciprocal(total, total)
    result = ndarray(x.shape, dtype or x.dtype)
    isa.tensor_scalar(result, tile, ops.multiply, total)
    return result


def rms_norm(
    x: NkiTensor, w: NkiTensor, axis: Any, n: int, epsilon: float = 1e-6, dtype: Any = None, compute_dtype: Any = None
) -> NkiTensor:
    """``x * rsqrt(sum(x ** 2) / n + epsilon) * w`` over the last dimension."""
    inner = compute_dtype or dtypes.float32
    squares, total = ndarray(x.shape, inner), ndarray((x.shape[0], 1), dtypes.float32)
    isa.activation_reduce(squares, ops.square, x, ops.add, total)
    isa.activation(total, ops.rsqrt, total, bias=float(epsilon), scale=1.0 / n)
    isa.tensor_scalar(squares, x, ops.multiply, total)
    result = ndarray(x.shape, dtype or x.dtype)
    isa.tensor_tensor(result, squares, w, ops.multiply)
    return result


def where(condition: NkiTensor, x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """``x`` where ``condition`` is not 0, else ``y``."""
    shape = next((value.shape for value in (x, y) if type(value) is NkiTensor), condition.shape)
    kind = dtype or next((value.dtype for value in (x, y) if type(value) is NkiTensor), dtypes.float32)
    mask, tile = ndarray(shape, dtypes.uint8), ndarray(shape, kind)
    isa.tensor_scalar(mask, condition, ops.not_equal, 0.0)
    if type(y) is NkiTensor:
        isa.tensor_copy(tile, y)
    else:
        isa.memset(tile, y)
    if type(x) is NkiTensor and x.dtype != kind:
        x = copy(x, kind)
    isa.tensor_copy_predicated(tile, x, mask)
    return tile


def matmul(x: NkiTensor, y: NkiTensor, transpose_x: bool = False) -> NkiTensor:
    """``x @ y`` into a new tile of PSUM; with ``transpose_x``, ``x`` is transposed already."""
    if not transpose_x:
        x = copy(transpose(x))
    tile = ndarray((x.size // x.shape[0], y.size // y.shape[0]), dtypes.float32, Buffer.psum)
    isa.nc_matmul(tile, x, y)
    return tile


def transpose(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """Exchange partitions and elements into a new tile of PSUM."""
    tile = ndarray((x.size // x.shape[0], x.shape[0]), dtype or x.dtype, Buffer.psum)
    isa.nc_transpose(tile, x, engine=Engine.tensor)
    return tile


def broadcast_to(x: NkiTensor, shape: Sequence[int], dtype: Any = None) -> NkiTensor:
    """Repeat dimensions of size 1 into a new tile; a single partition, by DMA."""
    tile = ndarray(shape, dtype or x.dtype)
    if x.shape[0] != shape[0]:
        isa.dma_copy(tile, x._view((shape[0], *x.shape[1:]), (0, *x.strides[1:])).broadcast_to(shape))
    else:
        isa.tensor_copy(tile, x.broadcast_to(shape))
    return tile


def expand_dims(x: NkiTensor, axis: int) -> NkiTensor:
    """View with a dimension of size 1 before ``axis``."""
    return x.expand_dim(axis)


def gather_flattened(data: NkiTensor, indices: NkiTensor, axis: int = 0, dtype: Any = None) -> NkiTensor:
    """Take ``data[p, indices[p, ...]]`` of the flattened elements of each partition."""
    tile = ndarray(indices.shape, dtype or data.dtype)
    isa.nc_n_gather(tile, data, indices)
    return tile


def shared_constant(value: Any, dtype: Any = None) -> NkiTensor:
    """Make a tensor of HBM of a NumPy array or of the path of a ``.npy`` file."""
    import numpy as np

    array = np.load(value, allow_pickle=False) if isinstance(value, str) else np.asarray(value)
    kind = _dtype(dtype if dtype is not None else array.dtype)
    made = ndarray(array.shape, kind, Buffer.hbm)
    made.memory.watched = None  # holds values, which no instruction has written
    if made.memory.flat is not None:
        values = torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))
        made.codec.save(made.data, values)
    return made


def shared_identity_matrix(n: int, dtype: Any = dtypes.uint8, dst: NkiTensor | None = None) -> NkiTensor:
    """Make the ``n`` by ``n`` identity in SBUF, or write it to ``dst``."""
    made = dst if dst is not None else ndarray((n, n), dtype)
    made.memory.watched = None  # holds values, which no instruction has written
    if made.memory.flat is not None:
        made.codec.save(made.data, torch.eye(n))
    return made


def rand(shape: Sequence[int], dtype: Any = dtypes.float32) -> NkiTensor:
    """Make a tile of random numbers from 0 to 1."""
    tile = ndarray(shape, dtype)
    isa.random_uniform(tile)
    return tile


def random_seed(seed: Any) -> None:
    """Seed the core's generator with a number or a tensor of one element."""
    isa.seed(seed)


def dropout(x: NkiTensor, rate: Any, dtype: Any = None) -> NkiTensor:
    """Set each element to 0 with probability ``rate``."""
    tile = ndarray(x.shape, dtype or x.dtype)
    isa.dropout(tile, x, rate)
    return tile


def device_print(prefix: str, x: Any = None) -> None:
    """Print a tensor or a register when it is executed."""
    if x is None:
        print(prefix)
    elif isinstance(x, NkiTensor):
        print(prefix, x.to_torch() if x.memory.flat is not None else x)
    else:
        print(prefix, x.value if isinstance(x, NkiScalar) else x)
