"""Discrete Fourier transforms of pairs of real tensors: products with matrices of cosines and sines.

Long composite lengths are split in two (Cooley and Tukey, 1965). Angles are reduced exactly before they are computed,
so a transform in float32 has the error of its matrix products: a few units in the last place of the largest element.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

_DIRECT = 128
"""Up to this length one matrix product is faster than two with a transposition between."""

Pair = tuple[Tensor, Tensor]


def _turns(rows: int, columns: int, length: int, like: Tensor, sign: int) -> Pair:
    """Return cosine and sine of ``sign * 2 pi j k / length`` for all j and k."""
    j = torch.arange(rows, dtype=torch.int64, device=like.device)
    k = torch.arange(columns, dtype=torch.int64, device=like.device)
    product = (j[:, None] * k[None, :]) % length
    product = torch.where(product * 2 > length, product - length, product)
    angle = product.to(like.dtype) * (sign * 2.0 * math.pi / length)
    return torch.cos(angle), torch.sin(angle)


def _multiply(a: Pair, b: Pair) -> Pair:
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def _matmul(a: Pair, b: Pair) -> Pair:
    if a[0].dim() == 1:  # torch.matmul would squeeze the result in place
        real, imaginary = _matmul((a[0][None], a[1][None]), b)
        return real[0], imaginary[0]
    return a[0] @ b[0] - a[1] @ b[1], a[0] @ b[1] + a[1] @ b[0]


def _along_last(x: Pair, sign: int) -> Pair:
    length = x[0].shape[-1]
    factor = _factor(length)
    if length <= _DIRECT or factor == 1:
        return _matmul(x, _turns(length, length, length, x[0], sign))
    rest = length // factor
    grid = [part.reshape(*part.shape[:-1], factor, rest).transpose(-1, -2) for part in x]
    inner = _along_last((grid[0], grid[1]), sign)  # [..., rest, factor]
    turned = _multiply(inner, _turns(rest, factor, length, x[0], sign))
    outer = _along_last((turned[0].transpose(-1, -2), turned[1].transpose(-1, -2)), sign)  # [..., factor, rest]
    real, imaginary = (part.transpose(-1, -2).reshape(x[0].shape) for part in outer)
    return real, imaginary


def _factor(length: int) -> int:
    """Return the largest factor up to the square root."""
    return next((f for f in range(math.isqrt(length), 1, -1) if length % f == 0), 1)


def transform(x: Pair, dims: Sequence[int], sign: int) -> Pair:
    """Transform along each of ``dims`` without scaling; ``sign`` is -1 forward."""
    for dim in dims:
        moved = _along_last((x[0].movedim(dim, -1), x[1].movedim(dim, -1)), sign)
        x = moved[0].movedim(-1, dim), moved[1].movedim(-1, dim)
    return x


def scale(x: Tensor, lengths: Sequence[int], normalization: int) -> Tensor:
    """Scale by ATen's normalization: 0 none, 1 one over the root of the length, 2 one over the length."""
    length = math.prod(lengths)
    if normalization == 0 or length == 0:
        return x
    return x * (1.0 / math.sqrt(length) if normalization == 1 else 1.0 / length)


def r2c(x: Tensor, dims: Sequence[int], normalization: int, onesided: bool) -> Pair:
    """Transform a real tensor; ``onesided`` keeps the first half of the last of ``dims``."""
    lengths = [x.shape[dim] for dim in dims]
    real, imaginary = transform((x, torch.zeros_like(x)), dims, -1)
    if onesided:
        half = lengths[-1] // 2 + 1
        real, imaginary = real.narrow(dims[-1], 0, half), imaginary.narrow(dims[-1], 0, half)
    return scale(real, lengths, normalization), scale(imaginary, lengths, normalization)


def c2c(x: Pair, dims: Sequence[int], normalization: int, forward: bool) -> Pair:
    """Transform a complex tensor."""
    lengths = [x[0].shape[dim] for dim in dims]
    real, imaginary = transform(x, dims, -1 if forward else 1)
    return scale(real, lengths, normalization), scale(imaginary, lengths, normalization)


def c2r(x: Pair, dims: Sequence[int], normalization: int, last_dim_size: int) -> Tensor:
    """Transform the first half of a Hermitian tensor backward to a real one."""
    *others, last = dims
    real, imaginary = transform(x, others, 1)
    half = last_dim_size // 2 + 1
    real, imaginary = (part.narrow(last, 0, half).movedim(last, -1) for part in (real, imaginary))
    mirrored = last_dim_size - half  # elements 1 to this, backwards, conjugated
    real = torch.cat([real, real.narrow(-1, 1, mirrored).flip(-1)], -1)
    imaginary = torch.cat([imaginary, -imaginary.narrow(-1, 1, mirrored).flip(-1)], -1)
    result = _along_last((real, imaginary), 1)[0].movedim(-1, last)
    return scale(result, [result.shape[dim] for dim in dims], normalization)
