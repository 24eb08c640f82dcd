"""Runs single instructions on NumPy data, and rounds references to the types of the language."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import torch

from torch_neuronx_nki import isa as nisa
from torch_neuronx_nki import language as nl
from torch_neuronx_nki.jit import jit, simulate

NUMPY = {
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3": ml_dtypes.float8_e4m3,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
    "int32": np.int32,
    "uint32": np.uint32,
    "int16": np.int16,
    "uint16": np.uint16,
    "int8": np.int8,
    "uint8": np.uint8,
}
FLOATS = ["float32", "float16", "bfloat16", "float8_e4m3", "float8_e5m2"]
INTEGERS = ["int32", "uint32", "int16", "uint16", "int8", "uint8"]


def rounded(values: Any, dtype: str) -> np.ndarray:
    """Round float64 values to a type: through float32, ties to even, integers saturate."""
    single = np.asarray(values, np.float64).astype(np.float32)
    if dtype in INTEGERS:
        limits = np.iinfo(NUMPY[dtype])
        return np.clip(np.rint(single.astype(np.float64)), limits.min, limits.max).astype(NUMPY[dtype])
    with np.errstate(over="ignore"):
        return single.astype(NUMPY[dtype])


def wide(values: np.ndarray) -> np.ndarray:
    """Return exact float64 values."""
    return values.astype(np.float32).astype(np.float64) if values.dtype.kind not in "iu" else values.astype(np.float64)


def data(shape: Sequence[int], dtype: str, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    """Make reproducible values of a type."""
    generator = np.random.default_rng(seed)
    if dtype in INTEGERS:
        limits = np.iinfo(NUMPY[dtype])
        low, high = max(limits.min, -100), min(limits.max, 100)
        return generator.integers(low, high, shape).astype(NUMPY[dtype])
    return rounded(generator.normal(size=shape) * scale, dtype)


def execute(
    body: Callable[..., Any],
    *inputs: np.ndarray,
    out: tuple[Sequence[int], str] | Sequence[tuple[Sequence[int], str]],
    buffers: Sequence[Any] | None = None,
    out_buffer: Any = nl.sbuf,
    target: str = "trn2",
    **settings: Any,
) -> Any:
    """Call ``body(*outs, *tiles)`` in a kernel, with inputs loaded to tiles, and return the outs.

    Inputs go to SBUF, or to ``buffers``; the outputs are tiles in ``out_buffer``, poisoned before.
    """
    several = isinstance(out[0], tuple) and isinstance(out[0][1], str)
    outs = list(out) if several else [out]  # type: ignore[list-item]

    @jit
    def kernel(*args: Any) -> Any:
        tiles = []
        for position, arg in enumerate(args):
            tile = nl.ndarray(arg.shape, arg.dtype)
            nisa.dma_copy(tile, arg)
            where = nl.sbuf if buffers is None else buffers[position]
            if where is not nl.sbuf:
                moved = nl.ndarray(arg.shape, arg.dtype, where)
                nisa.tensor_copy(moved, tile)
                tile = moved
            tiles.append(tile)
        results = [nl.ndarray(shape, dtype, out_buffer) for shape, dtype in outs]
        body(*results, *tiles)
        stored = []
        for result in results:
            if result.buffer is nl.psum:
                copied = nl.ndarray(result.shape, result.dtype)
                nisa.tensor_copy(copied, result)
                result = copied
            hbm = nl.ndarray(result.shape, result.dtype, nl.shared_hbm)
            nisa.dma_copy(hbm, result)
            stored.append(hbm)
        return tuple(stored)

    kernel.func.__signature__ = inspect.signature(lambda *args: None)  # type: ignore[attr-defined]
    results = simulate(kernel, target=target, **settings)(*inputs)
    results = [as_numpy(result, dtype) for result, (_, dtype) in zip(results, outs, strict=True)]
    return tuple(results) if several else results[0]


def as_numpy(result: Any, dtype: str) -> np.ndarray:
    """Return a result of a kernel as NumPy array of its type, whatever it came as."""
    if isinstance(result, torch.Tensor):
        size = result.element_size()
        unsigned = {1: torch.uint8, 2: torch.uint16, 4: torch.uint32}[size]
        return result.contiguous().view(unsigned).numpy().view(NUMPY[dtype])
    return result.view(NUMPY[dtype]) if result.dtype != NUMPY[dtype] else result


def assert_same(actual: np.ndarray, expected: np.ndarray) -> None:
    """Bits agree, but for the sign of zero and the bits of NaN."""
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    left, right = wide(actual), wide(expected)
    assert np.array_equal(left, right, equal_nan=True), np.argwhere(
        (left != right) & ~(np.isnan(left) & np.isnan(right))
    )[:5]


def assert_close(actual: np.ndarray, expected: np.ndarray, units: float = 2.0) -> None:
    """Values agree to a few units in the last place of the type: sums and transcendental functions."""
    assert actual.shape == expected.shape
    left, right = wide(actual), wide(expected)
    epsilon = float(ml_dtypes.finfo(actual.dtype).eps) if actual.dtype.kind not in "iu" else 1.0
    scale = np.maximum(np.abs(right), np.abs(right).max() * 0.1)
    assert (np.abs(left - right) <= units * epsilon * np.maximum(scale, 1e-30)).all(), np.abs(left - right).max()
