"""Products and transposes of matrices: float32 sums of products that are exact for narrow types."""

from collections.abc import Callable
from typing import Any

import torch

from torch_neuronx_nki.simulator import notes
from torch_neuronx_nki.simulator.accumulation import Accumulation, How, PartlyWritten
from torch_neuronx_nki.tensors import NkiTensor

Run = Callable[..., Any]


def matmul(dst: NkiTensor, stationary: NkiTensor, moving: NkiTensor, double: bool) -> Run:
    """``dst = stationary.T @ moving``, over partitions, and over dimension 1 where ``double``."""
    rows = stationary.shape[0] * (2 if double else 1)
    load_s, load_m = stationary.codec.load, moving.codec.load
    save, load, target = dst.codec.save, dst.codec.load, dst.shape

    def run(out: torch.Tensor, s: torch.Tensor, m: torch.Tensor, how: How) -> None:
        left, right = load_s(s), load_m(m)
        left, right = left.reshape(rows, -1), right.reshape(rows, -1)
        add_or_set(out, torch.mm(left.T, right).reshape(target), how, load, save)

    return run


def flat_matmul(dst: NkiTensor) -> Callable[..., bool]:
    """Return ``run(dst, stationary, moving, how)`` for tiles of two dimensions, which uses what is noted of them."""
    save, load, overwrite = dst.codec.save, dst.codec.load, Accumulation.OVERWRITE
    direct = dst.codec.carrier is torch.float32 and dst.strides[-1] == 1

    def run(to: NkiTensor, stationary: NkiTensor, moving: NkiTensor, how: How) -> bool:
        out, left, right = to.target, notes.stationary(stationary), notes.moving(moving)
        if not direct or isinstance(how, PartlyWritten):
            add_or_set(out, torch.mm(left, right), how, load, save)
        elif how is overwrite:
            torch.mm(left, right, out=out)
        else:
            out.addmm_(left, right)
        return True

    return run


def add_or_set(out: torch.Tensor, product: torch.Tensor, how: How, load: Run, save: Run) -> None:
    """Write or add a float32 product, as PSUM remembers."""
    if how is Accumulation.ADD:
        product = load(out) + product
    elif isinstance(how, PartlyWritten):
        product = torch.where(how.written, load(out) + product, product)
    save(out, product)


def transpose(dst: NkiTensor, stationary: NkiTensor, moving: NkiTensor) -> Run:
    """The same where one input only moves elements: bit for bit, even what is not finite."""
    rows, target = stationary.shape[0], dst.shape
    load_s, load_m, save = stationary.codec.load, moving.codec.load, dst.codec.save

    def run(out: torch.Tensor, s: torch.Tensor, m: torch.Tensor, _how: How) -> None:
        selects = load_m(m).reshape(rows, -1)
        ones = selects == 1.0
        if bool(((ones | (selects == 0.0)).all(0) & (ones.sum(0) == 1)).all()):
            picked = s.reshape(rows, -1).T[:, ones.float().argmax(0)]
            out.copy_(picked.reshape(target))
        else:
            save(out, torch.mm(load_s(s).reshape(rows, -1).T, selects).reshape(target))

    return run
