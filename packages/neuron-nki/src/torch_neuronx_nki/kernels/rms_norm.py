"""RMS normalization with its gradient: each row by the root of its mean square, then by a weight per column."""

from typing import Any

import torch

from torch_neuronx_nki import isa as nisa
from torch_neuronx_nki import language as nl
from torch_neuronx_nki.jit import jit
from torch_neuronx_nki.operators import nki_op
from torch_neuronx_nki.run import equivalent

TILE = 128
"""Rows in one tile."""
COLUMNS = 4096
"""The longest row: a tile of it and what is made of it are in SBUF together."""
_BANK = 512


def _spread(weight: Any) -> Any:
    """Return (1, columns) of HBM as a tile with that row in every partition."""
    columns = weight.shape[1]
    tile = nl.ndarray((TILE, columns), dtype=weight.dtype)
    nisa.dma_copy(tile, weight.ap([[0, TILE], [1, columns]]))
    return tile


@jit
def rms_norm_forward(x: Any, weight: Any, eps: float) -> Any:
    """Return ``x * r * weight`` and ``r = rsqrt(mean(x ** 2) + eps)`` in float32, (rows, 1); weight is (1, columns)."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    roots = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    scale = _spread(weight)
    for first in nl.affine_range(0, rows, TILE):
        size = min(TILE, rows - first)
        here = nl.ds(first, size)
        tile = nl.ndarray((size, columns), dtype=x.dtype)
        nisa.dma_copy(tile, x[here, :])
        squares = nl.ndarray((size, columns), dtype=nl.float32)
        root = nl.ndarray((size, 1), dtype=nl.float32)
        nisa.activation_reduce(squares, nl.square, tile, nl.add, root)
        nisa.tensor_scalar(root, root, nl.multiply, 1.0 / columns, op1=nl.add, operand1=eps)
        nisa.activation(root, nl.rsqrt, root)
        nisa.scalar_tensor_tensor(tile, tile, nl.multiply, root, nl.multiply, scale[0:size, :])
        nisa.dma_copy(out[here, :], tile)
        nisa.dma_copy(roots[here, :], root)
    return out, roots


@jit
def rms_norm_backward(grad: Any, x: Any, weight: Any, roots: Any) -> Any:
    """Return the gradients of ``x`` and, in float32, of ``weight``.

    With ``n = x * r`` and ``g = grad * weight`` they are ``r * (g - n * mean(g * n))`` and the sum of ``grad * n``.
    """
    rows, columns = x.shape
    d_x = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    d_weight = nl.ndarray((1, columns), dtype=nl.float32, buffer=nl.shared_hbm)
    scale = _spread(weight)
    sums = nl.ndarray((TILE, columns), dtype=nl.float32)
    nisa.memset(sums, 0.0)
    for first in nl.affine_range(0, rows, TILE):
        size = min(TILE, rows - first)
        here = nl.ds(first, size)
        tile, upstream = (nl.ndarray((size, columns), dtype=x.dtype) for _ in range(2))
        root, mean = (nl.ndarray((size, 1), dtype=nl.float32) for _ in range(2))
        nisa.dma_copy(tile, x[here, :])
        nisa.dma_copy(upstream, grad[here, :])
        nisa.dma_copy(root, roots[here, :])
        normal, product = (nl.ndarray((size, columns), dtype=nl.float32) for _ in range(2))
        nisa.tensor_scalar(normal, tile, nl.multiply, root)
        nisa.tensor_tensor(product, upstream, normal, op=nl.multiply)
        nisa.tensor_tensor(sums[0:size, :], sums[0:size, :], product, op=nl.add)
        nisa.tensor_tensor(product, product, scale[0:size, :], op=nl.multiply)
        nisa.tensor_reduce(mean, nl.add, product, axis=1)
        nisa.tensor_scalar(mean, mean, nl.multiply, -1.0 / columns)
        nisa.tensor_tensor(product, upstream, scale[0:size, :], op=nl.multiply)
        nisa.scalar_tensor_tensor(product, normal, nl.multiply, mean, nl.add, product)
        nisa.tensor_scalar(tile, product, nl.multiply, root)
        nisa.dma_copy(d_x[here, :], tile)
    ones = nl.ndarray((TILE, 1), dtype=nl.float32)
    nisa.memset(ones, 1.0)
    for first in nl.affine_range(0, columns, _BANK):
        part = nl.ds(first, min(_BANK, columns - first))
        total = nl.ndarray((1, part.size), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(total, ones, sums[:, part])
        stored = nl.ndarray(total.shape, dtype=nl.float32)
        nisa.tensor_copy(stored, total)
        nisa.dma_copy(d_weight[:, part], stored)
    return d_x, d_weight


@equivalent(rms_norm_forward)
def _forward_in_torch(x: torch.Tensor, weight: torch.Tensor, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    wide = x.float()
    roots = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * roots * weight.float()).to(x.dtype), roots


@equivalent(rms_norm_backward)
def _backward_in_torch(
    grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, roots: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    normal, upstream = x.float() * roots, grad.float()
    scaled = upstream * weight.float()
    d_x = roots * (scaled - normal * (scaled * normal).mean(-1, keepdim=True))
    return d_x.to(x.dtype), (upstream * normal).sum(0, keepdim=True)


@nki_op("torch_neuronx_nki::rms_norm")
def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Launch the forward kernel."""
    out, roots = rms_norm_forward(x, weight, eps)
    return out, roots


@nki_op("torch_neuronx_nki::rms_norm_backward")
def rms_norm_gradient(
    grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, roots: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Launch the backward kernel."""
    d_x, d_weight = rms_norm_backward(grad, x, weight, roots)
    return d_x, d_weight


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    ctx.save_for_backward(inputs[0], inputs[1], output[1])
    ctx.mark_non_differentiable(output[1])


def _gradient(ctx: Any, grad: torch.Tensor, grad_of_roots: torch.Tensor | None) -> tuple[Any, ...]:
    x, weight, roots = ctx.saved_tensors
    d_x, d_weight = rms_norm_gradient(grad.contiguous(), x, weight, roots)
    return d_x, d_weight.to(weight.dtype), None


rms_norm.register_autograd(_gradient, setup_context=_keep)

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def serves(
    x: torch.Tensor, normalized_shape: list[int], weight: torch.Tensor | None = None, eps: float | None = None
) -> bool:
    """Say whether the kernels can serve a call of ``_fused_rms_norm``.

    Rows along the last dimension, of up to 4096 elements in float32, bfloat16 or float16; a weight of the same dtype,
    or none.
    """
    if len(normalized_shape) != 1 or x.dim() < 1 or x.shape[-1] != normalized_shape[0]:
        return False
    if not 0 < x.shape[-1] <= COLUMNS or x.numel() == 0 or x.dtype not in _DTYPES:
        return False
    return weight is None or weight.dtype == x.dtype


def fused_rms_norm(
    x: torch.Tensor, normalized_shape: list[int], weight: torch.Tensor | None = None, eps: float | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute what ``aten::_fused_rms_norm`` does, for calls that :func:`serves` accepts."""
    columns = x.shape[-1]
    if weight is None:
        weight = torch.ones(columns, dtype=x.dtype, device=x.device)
    least = torch.finfo(x.dtype).eps if eps is None else eps
    out, roots = rms_norm(x.reshape(-1, columns), weight.reshape(1, columns), float(least))
    return out.reshape(x.shape), roots.reshape(*x.shape[:-1], 1)
