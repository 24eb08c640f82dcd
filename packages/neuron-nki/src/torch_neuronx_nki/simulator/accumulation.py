"""What PSUM remembers of matmuls: which elements they have written, so that the next one knows whether to add."""

import warnings
from enum import Enum

import torch

from torch_neuronx_nki.engines import Buffer
from torch_neuronx_nki.errors import NkiWarning
from torch_neuronx_nki.machine import Core
from torch_neuronx_nki.tensors import NkiTensor


class Accumulation(Enum):
    """What a matmul does with what its destination holds."""

    OVERWRITE = "overwrite"
    ADD = "add"


class PartlyWritten:
    """A destination of which an earlier matmul has written a part: add there, overwrite the rest."""

    def __init__(self, written: torch.Tensor) -> None:
        self.written = written


How = Accumulation | PartlyWritten


def choose(core: Core, dst: NkiTensor, accumulate: bool | None) -> How:
    """Return what a matmul into ``dst`` does, and remember that it has written there."""
    if type(dst) is not NkiTensor or dst.memory.buffer is not Buffer.psum:
        return Accumulation.OVERWRITE  # the check that follows says what is wrong
    memory = dst.memory
    regions = memory.matmul_regions
    region = (dst.shape, dst.strides, dst.offset)
    if accumulate is None:
        if region in regions:
            return Accumulation.ADD
        how = _of_new_region(core, dst) if regions else Accumulation.OVERWRITE
        regions[region] = True
        return how
    if not accumulate:
        regions[region] = True
        return Accumulation.OVERWRITE
    if region not in regions:
        if memory.written_otherwise and core.limits.generation < 4:
            _warn(core, f"adds to {dst.shape} of PSUM that another instruction wrote, which {core.limits.target} does "
                  "not define")  # fmt: skip
        elif not memory.written_otherwise and not _all_written(dst):
            _warn(core, f"adds to {dst.shape} of PSUM that no matmul has written")
        regions[region] = True
    return Accumulation.ADD


def _of_new_region(core: Core, dst: NkiTensor) -> How:
    written = _written(dst)
    if not bool(written.any()):
        return Accumulation.OVERWRITE
    if bool(written.all()):
        return Accumulation.ADD
    _warn(core, f"writes {dst.shape} of PSUM, of which an earlier matmul has written a part")
    return PartlyWritten(written)


def _all_written(dst: NkiTensor) -> bool:
    return bool(dst.memory.matmul_regions) and bool(_written(dst).all())


def _written(dst: NkiTensor) -> torch.Tensor:
    memory = dst.memory
    mask = torch.zeros(memory.shape[0] * memory.row, dtype=torch.bool)
    for shape, strides, offset in memory.matmul_regions:
        torch.as_strided(mask, shape, strides, offset).fill_(True)
    return torch.as_strided(mask, dst.shape, dst.strides, dst.offset)


def _warn(core: Core, what: str) -> None:
    if core.verifier is not None:
        core.verifier.accumulates(what)
        return
    warnings.warn(f"nisa.nc_matmul {what}.", NkiWarning, stacklevel=4)
