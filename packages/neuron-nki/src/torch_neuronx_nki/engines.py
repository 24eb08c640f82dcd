"""The enumerations that kernels pass to instructions, with the vendor's spellings and values."""

from enum import IntEnum, StrEnum


class Engine(IntEnum):
    """A unit of a core that executes instructions in order. ``unknown`` leaves the choice to the compiler."""

    unknown = 0
    tensor = 1
    scalar = 2
    gpsimd = 3
    dma = 4
    vector = 5
    sync = 6


class NcVersion(IntEnum):
    """A generation of the core: gen2 is in Trn1 and Inf2, gen3 in Trn2, gen4 in Trn3."""

    gen2 = 2
    gen3 = 3
    gen4 = 4


class ReduceCmd(IntEnum):
    """What an instruction does with the running result of its engine."""

    idle = 0
    reset = 1
    reduce = 2
    reset_reduce = 3
    load_reduce = 4


class DgeMode(IntEnum):
    """Who makes the descriptors of a DMA transfer: software, hardware, or the compiler ahead of time (``none``)."""

    unknown = 0
    swdge = 1
    hwdge = 2
    none = 3


class OobMode(IntEnum):
    """What an indirect transfer does with an index outside of the tensor."""

    error = 0
    skip = 1


class MatmulPerfMode(StrEnum):
    """How the tensor engine packs its rows."""

    none = "none"
    double_row = "double_row"


class DmaEngine(IntEnum):
    """Which engine carries an exchange between cores."""

    dma = 1
    gpsimd_dma = 2


class Buffer(StrEnum):
    """A memory that tensors live in. ``hbm`` is one core's own; the cores of a launch share ``shared_hbm``."""

    sbuf = "sbuf"
    psum = "psum"
    hbm = "private_hbm"
    shared_hbm = "shared_hbm"

    on_chip: bool
    """Whether dimension 0 is the partition."""

    def __init__(self, spelling: str) -> None:
        self.on_chip = spelling in ("sbuf", "psum")
