"""Elementwise arithmetic and reductions: float32 inside, rounded once into the type of the destination.

Each function takes what was checked and returns a function that runs on torch tensors. Choices that depend on types and
shapes are made here, once, so that what runs is one or two calls of torch.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from torch_neuronx_nki.dtypes import Codec
from torch_neuronx_nki.ops import UNARY_ALU, Operator, OperatorKind
from torch_neuronx_nki.tensors import NkiTensor

Run = Callable[..., Any]
Binary = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Shape = tuple[int, ...]

_SIGNED = {torch.uint32: torch.int32, torch.uint16: torch.int16}


def keep(values: torch.Tensor) -> torch.Tensor:
    """Return ``values``."""
    return values


def single(value: Any) -> float:
    """Return a number rounded to float32: -3.4028235e38, as kernels write its smallest, is beyond it in float64."""
    return float(np.float32(value))


@lru_cache(4096)
def _number(value: float, _sign: float) -> torch.Tensor:
    return torch.tensor(single(value), dtype=torch.float32)


def number(value: Any) -> torch.Tensor:
    """Return a number as float32 tensor without dimensions; the caller does not write to it."""
    return _number(value, math.copysign(1.0, value))


def as_operand(operand: Any, rank: int) -> torch.Tensor:
    """Return a number, or one element per partition, in a form that broadcasts over ``rank`` dimensions."""
    if isinstance(operand, torch.Tensor):
        return operand if rank == operand.dim() else operand.reshape(operand.shape[0], *[1] * (rank - 1))
    return number(operand)


def binary(op: Operator) -> Binary:
    """Return ``op`` as a function of two; an operator of one ignores the second."""
    if op in UNARY_ALU:
        compute = op.compute
        return lambda x, _: compute(x)
    return op.compute


def saver(out: NkiTensor, shape: Shape) -> Run:
    """Return ``save(out, values)`` for float32 values of ``shape``, which may differ from the destination's."""
    save = out.codec.save
    if out.shape == shape:
        return save
    target = out.shape
    return lambda data, values: save(data, values.reshape(target))


def tensor_tensor(op: Operator, dst: NkiTensor, left: NkiTensor, right: NkiTensor) -> Run:
    """``dst = left op right``."""
    shape = left.shape
    if right.shape != shape:
        load, save, compute, first = right.codec.load, saver(dst, shape), binary(op), left.codec.load
        return lambda out, a, b: save(out, compute(first(a), load(b.reshape(shape))))
    into = op.into
    if into is not None and dst.codec.native and dst.shape == shape and op not in UNARY_ALU:
        one_type = left.codec is right.codec and left.codec.native
        if one_type and (left.codec is dst.codec or left.codec.carrier is torch.float32):
            return lambda out, a, b: into(a, b, out=out)
        load_left, load_right = left.codec.load, right.codec.load
        return lambda out, a, b: into(load_left(a), load_right(b), out=out)
    load_left, load_right, save, compute = left.codec.load, right.codec.load, saver(dst, shape), binary(op)
    return lambda out, a, b: save(out, compute(load_left(a), load_right(b)))


def integers(values: torch.Tensor, codec: Codec) -> torch.Tensor:
    """Return the elements of an integer type as int64."""
    return values.long()


def save_integers(out: torch.Tensor, values: torch.Tensor, codec: Codec) -> None:
    """Write int64 values to an integer type, cut to its bits; to another type, rounded."""
    if codec.dtype.is_integer:
        bits = codec.dtype.itemsize * 8
        values = values & ((1 << bits) - 1)
        signed = _SIGNED.get(out.dtype)
        if signed is None and out.dtype is not torch.uint8:
            values = torch.where(values >= 1 << (bits - 1), values - (1 << bits), values)
        out.copy_(values)
    else:
        codec.save(out, values.float())


def exact_integers(op: Operator, dst: NkiTensor, left: NkiTensor, right: NkiTensor) -> Run:
    """``dst = left op right`` without a detour through float32, modulo 2**32: the integer unit of GpSimd."""
    a_codec, b_codec, codec, shape, target = left.codec, right.codec, dst.codec, left.shape, dst.shape
    compute = op.compute

    def run(out: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
        result = compute(integers(a, a_codec), integers(b, b_codec).reshape(shape))
        save_integers(out, result.long().reshape(target), codec)

    return run


def bits(op: Operator, dst: NkiTensor, left: NkiTensor) -> Run:
    """``dst = left op right`` on the bits of integers; ``right`` is a tensor, one element per partition or a number."""
    codec, shape, target, compute, unary = dst.codec, left.shape, dst.shape, op.compute, op.name == "invert"

    def run(out: torch.Tensor, a: torch.Tensor, b: Any = None) -> None:
        save_integers(out, bit_operation(compute, unary, a, b, shape).long().reshape(target), codec)

    return run


def bit_operation(
    compute: Callable[..., torch.Tensor], unary: bool, a: torch.Tensor, b: Any, shape: Shape
) -> torch.Tensor:
    """Compute on the bits of ``a``."""
    signed = _SIGNED.get(a.dtype)
    if signed is not None:
        a = a.view(signed)
    if unary:
        return compute(a)
    if isinstance(b, torch.Tensor):
        other = _SIGNED.get(b.dtype)
        b = (b.view(other) if other is not None else b).to(a.dtype)
        b = b.reshape(shape) if b.numel() == a.numel() else as_operand(b, a.dim())
        return compute(a, b)
    wide = int(b) & ((1 << (a.element_size() * 8)) - 1)
    if a.dtype is not torch.uint8 and wide >> (a.element_size() * 8 - 1):
        wide -= 1 << (a.element_size() * 8)
    return compute(a, torch.tensor(wide, dtype=a.dtype))


def tensor_scalar(
    dst: NkiTensor, data: NkiTensor, op0: Operator, reverse0: bool, op1: Operator | None, reverse1: bool
) -> Run:
    """``dst = (data op0 operand0) op1 operand1``; reversed operators have the operand on the left."""
    rank, load, save = len(data.shape), data.codec.load, saver(dst, data.shape)
    first = ordered(op0, reverse0)
    direct = dst.codec.native and dst.shape == data.shape
    if op1 is None:
        alone = op0.into if op0 not in UNARY_ALU else None
        if alone is not None and direct:
            if reverse0:
                return lambda out, x, s, _: alone(as_operand(s, rank), load(x), out=out)
            return lambda out, x, s, _: alone(load(x), as_operand(s, rank), out=out)
        return lambda out, x, s, _: save(out, first(load(x), as_operand(s, rank)))
    second = ordered(op1, reverse1)
    into = op1.into if op1 not in UNARY_ALU else None
    if into is not None and direct:
        if reverse1:
            return lambda out, x, s, t: into(as_operand(t, rank), first(load(x), as_operand(s, rank)), out=out)
        return lambda out, x, s, t: into(first(load(x), as_operand(s, rank)), as_operand(t, rank), out=out)
    return lambda out, x, s, t: save(out, second(first(load(x), as_operand(s, rank)), as_operand(t, rank)))


def tensor_scalar_bits(
    dst: NkiTensor, data: NkiTensor, op0: Operator, reverse0: bool, op1: Operator | None, reverse1: bool
) -> Run:
    """The same on the bits of integers."""
    codec, shape, target = dst.codec, data.shape, dst.shape

    def one(op: Operator, reverse: bool, x: torch.Tensor, s: Any) -> torch.Tensor:
        if reverse and op.name != "invert":
            filled = torch.empty_like(x)
            filled.copy_(as_operand(s, x.dim()) if isinstance(s, torch.Tensor) else torch.tensor(int(s)))
            return bit_operation(op.compute, False, filled, x, shape)
        return bit_operation(op.compute, op.name == "invert", x, s, shape)

    def run(out: torch.Tensor, x: torch.Tensor, s: Any, t: Any) -> None:
        result = one(op0, reverse0, x, s)
        if op1 is not None:
            result = one(op1, reverse1, result, t)
        save_integers(out, result.long().reshape(target), codec)

    return run


def ordered(op: Operator, reverse: bool) -> Binary:
    """Return ``op`` as a function of two, with the second on the left where ``reverse``."""
    compute = binary(op)
    if reverse and op not in UNARY_ALU:
        return lambda x, y: compute(y, x)
    return compute


def scalar_tensor_tensor(
    dst: NkiTensor, data: NkiTensor, right: NkiTensor, op0: Operator, reverse0: bool, op1: Operator, reverse1: bool
) -> Run:
    """``dst = (data op0 operand0) op1 right``."""
    rank, shape, save = len(data.shape), data.shape, saver(dst, data.shape)
    load, load_right = data.codec.load, right.codec.load
    first, second = ordered(op0, reverse0), ordered(op1, reverse1)
    into = op1.into if op1 not in UNARY_ALU else None
    if into is not None and dst.codec.native and dst.shape == shape == right.shape:
        if reverse1:
            return lambda out, x, s, y: into(load_right(y), first(load(x), as_operand(s, rank)), out=out)
        return lambda out, x, s, y: into(first(load(x), as_operand(s, rank)), load_right(y), out=out)
    return lambda out, x, s, y: save(out, second(first(load(x), as_operand(s, rank)), load_right(y.reshape(shape))))


def copy(dst: NkiTensor, src: NkiTensor) -> Run:
    """``dst = src``: bit for bit within a type, through float32 between types. Shapes have equally many elements."""
    target = dst.shape
    same = dst.codec is src.codec or (dst.dtype == src.dtype and dst.codec.carrier is src.codec.carrier)
    if same or (dst.codec.native and src.codec.native):
        if src.shape == target:
            return torch.Tensor.copy_
        return lambda out, x: out.copy_(x.reshape(target))
    load, save = src.codec.load, dst.codec.save
    return lambda out, x: save(out, load(x).reshape(target))


def activation(op: Operator, dst: NkiTensor, data: NkiTensor, bias: Any = None, *, keeps: bool = False) -> Run:
    """Return ``compute(out, x, bias, scale)``, which writes ``op(x * scale + bias)``.

    With ``keeps`` it returns what it wrote, in float32, before it was rounded. Each step is rounded to float32.
    """
    rank, load, save, compute, into = len(data.shape), data.codec.load, saver(dst, data.shape), op.compute, op.into
    load_bias = bias.codec.load if type(bias) is NkiTensor else keep
    ours = data.codec.carrier is not torch.float32  # then load makes new memory, which may be written to
    direct = into is not None and dst.codec.native and dst.shape == data.shape
    # steps may be written to the destination where it can be none of the operands of one element per partition
    in_place = direct and dst.codec.carrier is torch.float32 and dst.layout.run > 1

    def run(out: torch.Tensor, x: torch.Tensor, bias: Any, scale: Any) -> torch.Tensor:
        values, fresh = load(x), ours
        place = out if in_place else None
        if type(scale) is torch.Tensor or scale != 1.0:
            values = torch.mul(values, as_operand(scale, rank), out=values if fresh else place)
            fresh = True
        if bias is not None:
            values = torch.add(values, as_operand(load_bias(bias), rank), out=values if fresh else place)
            fresh = True
        if into is not None and direct and (in_place or not keeps):
            return into(values, out=out)
        values = into(values, out=values) if into is not None and fresh else compute(values)
        save(out, values)
        return values

    return run


def reduction(op: Operator, dst: NkiTensor, data: NkiTensor, dims: tuple[int, ...], negate: bool) -> Run:
    """``dst = reduce(data)`` over the dimensions ``dims``."""
    target, load, save, reduce = dst.shape, data.codec.load, dst.codec.save, op.reduce
    assert reduce is not None
    if op.kind is OperatorKind.BITS:
        codec = dst.codec

        def run_bits(out: torch.Tensor, x: torch.Tensor) -> None:
            signed = _SIGNED.get(x.dtype)
            values = reduce(x if signed is None else x.view(signed), dims)
            save_integers(out, values.long().reshape(target), codec)

        return run_bits
    if negate:
        return lambda out, x: save(out, reduce(load(x), dims).neg_().reshape(target))
    if target == tuple(1 if dim in dims else size for dim, size in enumerate(data.shape)):
        return lambda out, x: save(out, reduce(load(x), dims))
    return lambda out, x: save(out, reduce(load(x), dims).reshape(target))
