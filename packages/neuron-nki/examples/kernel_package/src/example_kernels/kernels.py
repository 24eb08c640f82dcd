"""The logarithm of the sigmoid as a kernel, with its gradient."""

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
import torch

from torch_neuronx import nki_op


@nki.jit
def log_sigmoid_kernel(x: Any) -> Any:
    """Return ``min(x, 0) - log(1 + exp(-abs(x)))`` of a matrix, which is finite for every finite ``x``."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for start in nl.affine_range(0, rows, nl.tile_size.pmax):
        size = min(nl.tile_size.pmax, rows - start)
        tile = nl.ndarray((size, columns), dtype=x.dtype, buffer=nl.sbuf)
        rest = nl.ndarray((size, columns), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[nl.ds(start, size), :])
        nisa.activation(dst=rest, op=nl.abs, data=tile)
        nisa.activation(dst=rest, op=nl.exp, data=rest, scale=-1.0)
        nisa.activation(dst=rest, op=nl.log, data=rest, bias=1.0)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.minimum, operand0=0.0)
        nisa.tensor_tensor(dst=tile, data1=tile, data2=rest, op=nl.subtract)
        nisa.dma_copy(dst=out[nl.ds(start, size), :], src=tile)
    return out


@nki_op("example_kernels::log_sigmoid")
def log_sigmoid(x: torch.Tensor) -> torch.Tensor:
    """Launch the kernel on ``x`` as a matrix."""
    return log_sigmoid_kernel(x.reshape(-1, x.shape[-1])).reshape(x.shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.save_for_backward(inputs[0])


def _gradient(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
    (x,) = ctx.saved_tensors
    return grad * torch.sigmoid(-x)


log_sigmoid.register_autograd(_gradient, setup_context=_keep)


def serves(x: torch.Tensor) -> bool:
    """Say whether the kernel takes ``x``: float32 or bfloat16, rows of up to 8192 elements."""
    return x.dtype in (torch.float32, torch.bfloat16) and x.dim() > 0 and x.numel() > 0 and x.shape[-1] <= 8192
