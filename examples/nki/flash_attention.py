"""Attention of a query tile at a time with a running maximum, as an operator that trains, eager and compiled.

The package has a kernel with more shapes and a backward kernel: ``torch_neuronx_nki.kernels.attention``.
"""

import nki
import nki.isa as nisa
import nki.language as nl
import torch

from torch_neuronx import nki_op

TILE = nl.tile_size.pmax


def turn(tile, dtype):
    """Return ``tile`` (128, columns) transposed, in SBUF."""
    across = nl.ndarray((tile.shape[1], TILE), dtype=dtype, buffer=nl.psum)
    result = nl.ndarray(across.shape, dtype=dtype, buffer=nl.sbuf)
    nisa.nc_transpose(dst=across, data=tile)
    nisa.tensor_copy(dst=result, src=across)
    return result


@nki.jit
def flash_attention(query, key, value, scale):
    """Return ``softmax(query @ key.T * scale) @ value``; all are (heads, length, depth) with depth up to 128.

    Lengths are multiples of 128. Scores of 128 by 128 exist at a time, whatever the length.
    """
    heads, queries, depth = query.shape
    keys, dtype = key.shape[1], query.dtype
    out = nl.ndarray(query.shape, dtype=dtype, buffer=nl.shared_hbm)
    for head in nl.affine_range(heads):
        for q in nl.affine_range(0, queries, TILE):
            rows = nl.ndarray((TILE, depth), dtype=dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=rows, src=query[head, nl.ds(q, TILE), :])
            stationary = turn(rows, dtype)
            top, total = (nl.ndarray((TILE, 1), dtype=nl.float32, buffer=nl.sbuf) for _ in range(2))
            result = nl.ndarray((TILE, depth), dtype=nl.float32, buffer=nl.sbuf)
            nisa.memset(dst=top, value=-1e30)
            nisa.memset(dst=total, value=0.0)
            nisa.memset(dst=result, value=0.0)
            for k in nl.sequential_range(0, keys, TILE):
                key_rows, values = (nl.ndarray((TILE, depth), dtype=dtype, buffer=nl.sbuf) for _ in range(2))
                nisa.dma_copy(dst=key_rows, src=key[head, nl.ds(k, TILE), :])
                nisa.dma_copy(dst=values, src=value[head, nl.ds(k, TILE), :])
                scores = nl.ndarray((TILE, TILE), dtype=nl.float32, buffer=nl.psum)
                nisa.nc_matmul(dst=scores, stationary=stationary, moving=turn(key_rows, dtype))

                largest, shift, shrink, added = (
                    nl.ndarray((TILE, 1), dtype=nl.float32, buffer=nl.sbuf) for _ in range(4)
                )
                nisa.tensor_reduce(dst=largest, op=nl.maximum, data=scores, axis=1)
                nisa.tensor_tensor(dst=largest, data1=largest, data2=top, op=nl.maximum)
                nisa.tensor_scalar(dst=shift, data=largest, op0=nl.multiply, operand0=-scale)
                weights = nl.ndarray((TILE, TILE), dtype=dtype, buffer=nl.sbuf)
                nisa.activation_reduce(
                    dst=weights, op=nl.exp, data=scores, reduce_op=nl.add, reduce_res=added, bias=shift, scale=scale
                )
                # what was summed so far was relative to the largest score so far
                nisa.activation(dst=shrink, op=nl.exp, data=top, bias=shift, scale=scale)
                nisa.scalar_tensor_tensor(
                    dst=total, data=total, op0=nl.multiply, operand0=shrink, op1=nl.add, operand1=added
                )
                product = nl.ndarray((TILE, depth), dtype=nl.float32, buffer=nl.psum)
                nisa.nc_matmul(dst=product, stationary=turn(weights, dtype), moving=values)
                nisa.scalar_tensor_tensor(
                    dst=result, data=result, op0=nl.multiply, operand0=shrink, op1=nl.add, operand1=product
                )
                top = largest
            nisa.reciprocal(dst=total, data=total)
            stored = nl.ndarray((TILE, depth), dtype=dtype, buffer=nl.sbuf)
            nisa.tensor_scalar(dst=stored, data=result, op0=nl.multiply, operand0=total)
            nisa.dma_copy(dst=out[head, nl.ds(q, TILE), :], src=stored)
    return out


@nki_op("nki_examples::attention")
def attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float) -> torch.Tensor:
    """Launch the kernel."""
    return flash_attention(query, key, value, scale)


def keep(ctx, inputs, output):
    """Keep what the gradient needs: not the weights, which are made again."""
    query, key, value, ctx.scale = inputs
    ctx.save_for_backward(query, key, value)


def gradient(ctx, grad):
    """Compute the gradients in PyTorch; in a compiled graph they are compiled with it."""
    query, key, value = ctx.saved_tensors
    weights = torch.softmax(query @ key.mT * ctx.scale, -1)
    d_weights = grad @ value.mT
    d_scores = weights * (d_weights - (d_weights * weights).sum(-1, keepdim=True)) * ctx.scale
    return d_scores @ key, d_scores.mT @ query, weights.mT @ grad, None


attention.register_autograd(gradient, setup_context=keep)


def example():
    """What `torch-neuronx nki check` and `torch-neuronx nki cost` run."""
    return flash_attention, (*(torch.randn(2, 256, 64) for _ in range(3)), 64**-0.5)


if __name__ == "__main__":
    query, key, value = (torch.randn(2, 256, 64, device="neuron", requires_grad=True) for _ in range(3))
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value)
    compiled = torch.compile(attention, backend="neuron", fullgraph=True)
    for name, function in (("eager", attention), ("compiled", compiled)):
        result = function(query, key, value, 64**-0.5)
        result.sum().backward()
        print(name, "largest difference:", (result - expected).abs().max().item())
