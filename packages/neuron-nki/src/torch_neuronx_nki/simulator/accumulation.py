"""What PSUM remembers of matmuls: which elements they have written, so that the next one knows whether to add."""

import warnings
from enum import Enum

import torch

from torch_neuronx_nki.engines import Buffer
from torch_neuronx_nki.errors import NkiWarning
from torch_neuronx_nki.machine import Core
from torch_neuronx_nki.tensors import Layout, NkiTensor


class Accumulation(Enum):
    """What a matmul does with what its destination holds."""

    OVERWRITE = "overwrite"
    ADD = "add"


class PartlyWritten:
    """A destination of which an earlier matmul has written a part: add there, overwrite the rest."""

    def __init__(self, written: torch.Tensor) -> None:
        self.written = written


_PSUM, _ADD, _OVERWRITE = Buffer.psum, Accumulation.ADD, Accumulation.OVERWRITE
How = Accumulation | PartlyWritten
Box = tuple[int, int, int, int]


def choose(core: Core, dst: NkiTensor, accumulate: bool | None) -> How:
    """Return what a matmul into ``dst`` does, and remember that it has written there."""
    if type(dst) is not NkiTensor or dst.memory.buffer is not _PSUM:
        return _OVERWRITE  # the check that follows says what is wrong
    memory = dst.memory
    regions = memory.matmul_regions
    region = (dst.layout, dst.offset)
    if accumulate is None:
        if region in regions:
            return _ADD
        how = _of_new_region(core, dst) if regions else _OVERWRITE
        regions[region] = _box(dst)
        return how
    if not accumulate:
        regions[region] = _box(dst)
        return Accumulation.OVERWRITE
    if region not in regions:
        if memory.written_otherwise and core.limits.generation < 4:
            _warn(core, f"adds to {dst.shape} of PSUM that another instruction wrote, which {core.limits.target} does "
                  "not define")  # fmt: skip
        elif not memory.written_otherwise and not _all_written(dst):
            _warn(core, f"adds to {dst.shape} of PSUM that no matmul has written")
        regions[region] = _box(dst)
        if memory.unwritten is not None:
            memory.poison()
    return Accumulation.ADD


def _box(dst: NkiTensor) -> Box:
    """Return the partitions and the bytes of them that ``dst`` lies within."""
    memory, layout, size = dst.memory, dst.layout, dst.dtype.itemsize
    row, _ = memory.in_elements_of(dst.codec)
    first = dst.offset - layout.partition * row
    last = layout.partition + dst.strides[0] // row * (dst.shape[0] - 1)
    return layout.partition, last + 1, (first + layout.low) * size, (first + layout.high + 1) * size


def _apart(one: Box, other: Box) -> bool:
    return one[1] <= other[0] or other[1] <= one[0] or one[3] <= other[2] or other[3] <= one[2]


def _of_new_region(core: Core, dst: NkiTensor) -> How:
    box = _box(dst)
    if all(_apart(box, other) for other in dst.memory.matmul_regions.values()):
        return Accumulation.OVERWRITE
    written = _written(dst)
    if not bool(written.any()):
        return Accumulation.OVERWRITE
    if bool(written.all()):
        return Accumulation.ADD
    if dst.memory.unwritten is not None:
        dst.memory.poison()
    _warn(core, f"writes {dst.shape} of PSUM, of which an earlier matmul has written a part")
    return PartlyWritten(written)


def _all_written(dst: NkiTensor) -> bool:
    return bool(dst.memory.matmul_regions) and bool(_written(dst).all())


def _written(dst: NkiTensor) -> torch.Tensor:
    memory = dst.memory
    mask = torch.zeros(memory.shape[0] * memory.row * memory.codec.dtype.itemsize, dtype=torch.bool)
    for layout, offset in memory.matmul_regions:
        _bytes(mask, layout, offset).fill_(True)
    return _bytes(mask, dst.layout, dst.offset).all(-1)


def _bytes(mask: torch.Tensor, layout: Layout, offset: int) -> torch.Tensor:
    size = layout.codec.dtype.itemsize
    strides = [stride * size for stride in layout.strides]
    return torch.as_strided(mask, (*layout.shape, size), (*strides, 1), offset * size)


def _warn(core: Core, what: str) -> None:
    if core.verifier is not None:
        core.verifier.accumulates(what)
        return
    warnings.warn(f"nisa.nc_matmul {what}.", NkiWarning, stacklevel=4)
