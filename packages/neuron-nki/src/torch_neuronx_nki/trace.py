"""What a kernel does, one frozen record per event, handed to observers while it runs.

The simulator keeps no record itself: a kernel of a hundred thousand instructions costs no memory unless an observer
keeps what it is given. An observer is any callable that takes one event::

    with trace.observe(lambda event: print(event)):
        kernel(x)

The events of a launch come in this order: :class:`LaunchStarted`; for each core, interleaved where cores exchange,
:class:`Allocation`, :class:`Instruction`, :class:`Dependency`; and :class:`LaunchFinished`. Sizes are bytes, positions
on chip are (partition, byte within the partition). The records hold no tensor and no data.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from torch_neuronx_nki.engines import Buffer, DgeMode, Engine, NcVersion


class Access(StrEnum):
    """What an instruction does with an operand. ``UPDATE`` reads what it then writes, as an accumulation does."""

    READ = "read"
    WRITE = "write"
    UPDATE = "update"


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A line of the kernel, or of a function that it calls."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


@dataclass(frozen=True, slots=True)
class Allocation:
    """A tensor came to be: an argument of the kernel, or ``nl.ndarray`` and what is made of it.

    There is no event for its end. Its lifetime is from the first to the last instruction that names ``id``.
    """

    id: int
    """Unique within the launch, over all cores."""
    name: str
    buffer: Buffer
    dtype: str
    shape: tuple[int, ...]
    core: int | None
    """The core that made it; None for arguments and for tensors that the cores share."""
    partitions: int
    """On chip: partitions that it takes; in HBM: 1."""
    bytes_per_partition: int
    """On chip: bytes in each partition; in HBM: all its bytes."""
    address: tuple[int, int] | None
    """(first partition, first byte within a partition) where the program placed it, None where the compiler may."""
    is_argument: bool
    source: SourceLocation | None

    @property
    def nbytes(self) -> int:
        """All its bytes."""
        return self.partitions * self.bytes_per_partition


@dataclass(frozen=True, slots=True)
class Operand:
    """What an instruction reads or writes of one tensor: a strided view, counted in elements of ``dtype``.

    A tensor on chip is laid out partition after partition: element ``offset`` of the allocation is in partition
    ``partition``, at byte ``first_byte`` of it.
    """

    name: str
    """The instruction's name for it: ``dst``, ``data1``, ``stationary``."""
    access: Access
    allocation: int
    """``Allocation.id``."""
    buffer: Buffer
    dtype: str
    itemsize: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    partition: int
    """First partition, within the allocation; 0 in HBM."""
    partitions: int
    """On chip: the first dimension; in HBM: 1."""
    first_byte: int
    """First byte that it touches: within a partition on chip, within the allocation in HBM."""
    end_byte: int
    """One past the last byte that it may touch, counted as ``first_byte``."""
    run_bytes: int
    """Longest run of adjacent bytes, within a partition on chip: what one DMA descriptor can carry."""
    indirect: bool
    """Whether the data says which elements are meant; the range is then that of the whole tensor."""

    @property
    def elements(self) -> int:
        """Number of elements."""
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def elements_per_partition(self) -> int:
        """Number of elements in each partition; in HBM, all of them."""
        return self.elements // self.partitions

    @property
    def nbytes(self) -> int:
        """Bytes moved: elements times their size."""
        return self.elements * self.itemsize


@dataclass(frozen=True, slots=True)
class MatmulShape:
    """The dimensions of one pass of the tensor engine: ``(k, m) x (k, n) -> (m, n)``."""

    k: int
    """Contracted rows: partitions of both inputs (times four for microscaled types)."""
    m: int
    """Columns of the stationary tile."""
    n: int
    """Columns of the moving tile: the pass takes about one cycle for each."""
    dtype: str
    """Of the moving tile."""
    performance_mode: str
    is_transpose: bool
    accumulates: bool
    """Whether it added to what PSUM held; False where it overwrote all of it."""
    tile_position: tuple[int, int]
    tile_size: tuple[int, int]


@dataclass(frozen=True, slots=True)
class DmaTransfer:
    """One DMA instruction as descriptors, each a run of bytes that is adjacent on both sides."""

    nbytes: int
    """Bytes of the destination."""
    descriptors: int
    descriptor_bytes: int
    mode: DgeMode
    indirect: bool
    transposes: bool
    computes: bool
    """Whether it adds sources, or to its destination."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One executed instruction."""

    index: int
    """Position in the order in which its core issued instructions, from 0."""
    core: int
    opcode: str
    """Name of the ``nki.isa`` function."""
    engine: Engine
    """The engine that it ran on: the one asked for, or what the simulator assumes where the compiler chooses."""
    engine_is_given: bool
    """Whether the kernel named the engine."""
    operands: tuple[Operand, ...]
    parameters: tuple[tuple[str, Any], ...]
    """The other arguments by name: operators by name, numbers, flags, registers by value."""
    matmul: MatmulShape | None
    dma: DmaTransfer | None
    cores: tuple[int, ...]
    """The cores that meet here (``core_barrier``, ``sendrecv``, collectives); empty for all others."""
    meeting: int | None
    """The how-manieth meeting of these cores it is: the records of one meeting have one number."""
    name: str
    """The name that the kernel gave it, or ``""``."""
    source: SourceLocation | None

    @property
    def elements_per_partition(self) -> int:
        """The largest number of elements that one partition works through."""
        return max((operand.elements_per_partition for operand in self.operands), default=0)

    def bytes_read(self, buffer: Buffer | None = None) -> int:
        """Return the bytes read, from ``buffer`` or from all."""
        return sum(
            operand.nbytes
            for operand in self.operands
            if operand.access is not Access.WRITE and (buffer is None or operand.buffer is buffer)
        )

    def bytes_written(self, buffer: Buffer | None = None) -> int:
        """Return the bytes written, to ``buffer`` or to all."""
        return sum(
            operand.nbytes
            for operand in self.operands
            if operand.access is not Access.READ and (buffer is None or operand.buffer is buffer)
        )


@dataclass(frozen=True, slots=True)
class Dependency:
    """The kernel ordered two instructions of a core by ``depends_on``, ``nl.no_reorder`` or a schedule."""

    core: int
    earlier: int
    """``Instruction.index``; -1 where a schedule names an instruction that did not run."""
    later: int


@dataclass(frozen=True, slots=True)
class LaunchStarted:
    """A kernel begins."""

    kernel: str
    target: str
    generation: NcVersion
    lnc: int
    """Number of cores that run it."""
    language: tuple[int, int]
    """Version of the language whose rules hold."""
    computes: bool
    """False where only shapes are followed: no instruction touches data."""
    source: SourceLocation | None


@dataclass(frozen=True, slots=True)
class LaunchFinished:
    """A kernel ended, or failed with ``error``."""

    kernel: str
    instructions: tuple[int, ...]
    """How many instructions each core issued."""
    outputs: tuple[int, ...]
    """``Allocation.id`` of what it returned."""
    error: BaseException | None


Event = LaunchStarted | Allocation | Instruction | Dependency | LaunchFinished
Observer = Callable[[Event], None]

_observers: ContextVar[tuple[Observer, ...]] = ContextVar("torch_neuronx_nki_observers", default=())


def current_observers() -> tuple[Observer, ...]:
    """Return the observers of this context, the oldest first."""
    return _observers.get()


@contextmanager
def observe(*observers: Observer) -> Iterator[None]:
    """Hand the events of every kernel that runs inside to ``observers``. What an observer raises ends the kernel."""
    token = _observers.set((*_observers.get(), *observers))
    try:
        yield
    finally:
        _observers.reset(token)


@contextmanager
def collect() -> Iterator[list[Event]]:
    """Keep the events of every kernel that runs inside, in a list that grows while they run."""
    events: list[Event] = []
    with observe(events.append):
        yield events
