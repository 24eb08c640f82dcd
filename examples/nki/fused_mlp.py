"""A gated MLP, ``(silu(x @ gate) * (x @ up)) @ down``, in one kernel: what is in between stays on the chip."""

import nki
import nki.isa as nisa
import nki.language as nl
import torch

from torch_neuronx import nki_op

TILE = nl.tile_size.pmax


@nki.jit
def gated_mlp(x, gate, up, down):
    """Return the MLP of each row of ``x``.

    ``x`` is (rows, width), ``gate`` and ``up`` (width, hidden), ``down`` (hidden, width). Rows, width and hidden are
    multiples of 128, width is up to 512.
    """
    rows, width = x.shape
    hidden, dtype = gate.shape[1], x.dtype
    steps = width // TILE
    out = nl.ndarray(x.shape, dtype=dtype, buffer=nl.shared_hbm)
    # the weights of a layer, side by side: (128, steps, hidden) and (128, hidden / 128, width)
    weights = []
    for weight in (gate, up):
        held = nl.ndarray((TILE, steps, hidden), dtype=dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=held, src=weight.reshape_dim(0, (steps, TILE)).permute((1, 0, 2)))
        weights.append(held)
    last = nl.ndarray((TILE, hidden // TILE, width), dtype=dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=last, src=down.reshape_dim(0, (hidden // TILE, TILE)).permute((1, 0, 2)))
    for row in nl.affine_range(0, rows, TILE):
        tile = nl.ndarray((TILE, width), dtype=dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[nl.ds(row, TILE), :])
        turned = nl.ndarray((TILE, steps, TILE), dtype=dtype, buffer=nl.sbuf)
        for step in nl.affine_range(steps):
            across = nl.ndarray((TILE, TILE), dtype=dtype, buffer=nl.psum)
            nisa.nc_transpose(dst=across, data=tile[:, nl.ds(step * TILE, TILE)])
            nisa.tensor_copy(dst=turned[:, step, :], src=across)
        result = nl.ndarray((TILE, width), dtype=nl.float32, buffer=nl.psum)
        for part in nl.affine_range(hidden // TILE):
            # (hidden, rows): the next product contracts over it, so it is made with hidden in the partitions
            sums = [nl.ndarray((TILE, TILE), dtype=nl.float32, buffer=nl.psum) for _ in weights]
            for to, weight in zip(sums, weights, strict=True):
                for step in nl.affine_range(steps):
                    nisa.nc_matmul(
                        dst=to, stationary=weight[:, step, nl.ds(part * TILE, TILE)], moving=turned[:, step, :]
                    )
            gated = nl.ndarray((TILE, TILE), dtype=nl.float32, buffer=nl.sbuf)
            product = nl.ndarray((TILE, TILE), dtype=dtype, buffer=nl.sbuf)
            nisa.activation(dst=gated, op=nl.silu, data=sums[0])
            nisa.tensor_tensor(dst=product, data1=gated, data2=sums[1], op=nl.multiply)
            nisa.nc_matmul(dst=result, stationary=product, moving=last[:, part, :])
        stored = nl.ndarray((TILE, width), dtype=dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=stored, src=result)
        nisa.dma_copy(dst=out[nl.ds(row, TILE), :], src=stored)
    return out


@nki_op("nki_examples::mlp")
def mlp(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    """Launch the kernel."""
    return gated_mlp(x, gate, up, down)


def keep(ctx, inputs, output):
    """Keep the arguments; what is in between is computed again."""
    ctx.save_for_backward(*inputs)


def gradient(ctx, grad):
    """Compute the gradients in PyTorch."""
    x, gate, up, down = ctx.saved_tensors
    before, other = x @ gate, x @ up
    half = torch.sigmoid(before)
    gated = before * half
    d_product = grad @ down.mT
    d_before = d_product * other * (half + gated * (1 - half))
    d_other = d_product * gated
    return (
        d_before @ gate.mT + d_other @ up.mT,
        x.mT @ d_before,
        x.mT @ d_other,
        (gated * other).mT @ grad,
    )


mlp.register_autograd(gradient, setup_context=keep)


def example():
    """What `torch-neuronx nki check` and `torch-neuronx nki cost` run."""
    return gated_mlp, tuple(torch.randn(*shape) for shape in ((256, 256), (256, 512), (256, 512), (512, 256)))


if __name__ == "__main__":
    x, gate, up = (torch.randn(*shape, device="neuron") / 16 for shape in ((256, 256), (256, 512), (256, 512)))
    down = (torch.randn(512, 256, device="neuron") / 16).requires_grad_()
    expected = (torch.nn.functional.silu(x @ gate) * (x @ up)) @ down
    compiled = torch.compile(mlp, backend="neuron", fullgraph=True)
    for name, function in (("eager", mlp), ("compiled", compiled)):
        result = function(x, gate, up, down)
        result.sum().backward()
        print(name, "largest difference:", (result - expected).abs().max().item())
