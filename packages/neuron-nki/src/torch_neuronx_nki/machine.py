"""The state of a launch and of each core that runs it: what is allocated, what engines hold, who observes.

Instructions find the core that runs them with :func:`current_core`; each core runs in a
thread of its own, one at a time.
"""

import itertools
import threading
from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any

import torch

from torch_neuronx_nki import source
from torch_neuronx_nki.dtypes import Codec, Dtype, Kind, codec
from torch_neuronx_nki.engines import Buffer
from torch_neuronx_nki.errors import NkiLaunchError, NkiValidationError
from torch_neuronx_nki.options import Options
from torch_neuronx_nki.targets import PARTITIONS, PSUM_BYTES
from torch_neuronx_nki.trace import Allocation, Event, Observer

if TYPE_CHECKING:
    from torch_neuronx_nki.issue import Plan
    from torch_neuronx_nki.simulator.notes import Notes
    from torch_neuronx_nki.tensors import Layout
    from torch_neuronx_nki.verifier.verifier import CoreVerifier

_MAX_PLANS = 20_000
_POISON = 0x5A
_NONE = type(None)
_MAX_SPARE = 4
"""Dropped tensors of one shape whose bytes are kept for the next: loops make the same tiles again and again."""
_CACHE_LINE = 64
_LONG_ROW = 256
"""Bytes of a partition, and multiples of it, from which partitions are set apart."""


def row_of(shape: tuple[int, ...]) -> int:
    """Return the elements below dimension 0."""
    return prod(shape[1:])


def _pitch(row: int, how: Codec) -> int:
    """Return the elements from one partition to the next of a tensor on chip, in the memory of this machine.

    Rows whose size is a power of two would all be in the same few sets of a processor's cache, which makes transposes
    and products of their columns several times slower: such rows are a cache line apart.
    """
    nbytes = row * how.carrier.itemsize
    return row if nbytes < _LONG_ROW or nbytes % _LONG_ROW else row + _CACHE_LINE // how.carrier.itemsize


class Bytes:
    """The bytes of a tensor on chip, and the torch tensors that have been made of them."""

    __slots__ = ("flat", "flats", "located")

    def __init__(self, flat: torch.Tensor) -> None:
        self.flat = flat
        self.flats: dict[torch.dtype, torch.Tensor] = {}
        """By type: the same bytes."""
        self.located: dict[Any, torch.Tensor] = {}
        """By layout and offset: the elements of a view."""


class Room:
    """What tensors on chip of one shape and type take, and the bytes of those that the kernel has dropped."""

    __slots__ = ("codec", "layout", "pitch", "row", "shape", "spare")

    def __init__(self, shape: tuple[int, ...], how: Codec) -> None:
        self.shape = shape
        self.codec = how
        self.row = row_of(shape)
        """Elements per partition."""
        self.pitch = _pitch(self.row, how)
        """Elements from one partition to the next in the memory of this machine."""
        self.spare: list[Bytes] = []
        self.layout: Layout | None = None
        """That of all of such a tensor, once there has been one."""

    def take(self) -> Bytes:
        """Return bytes for a new tensor: those of a dropped one, if there are any."""
        if self.spare:
            return self.spare.pop()
        return Bytes(torch.empty(self.shape[0] * self.pitch, dtype=self.codec.carrier))

    def give(self, held: Bytes, *, most: int = _MAX_SPARE) -> None:
        """Keep the bytes of a dropped tensor for the next one, if there are not ``most`` already."""
        if len(self.spare) < most:
            self.spare.append(held)


class Memory:
    """One allocation: where a tensor's elements are. Views share it."""

    __slots__ = (
        "__weakref__", "address", "base", "buffer", "bytes", "codec", "flat", "flats", "id", "is_argument", "is_dense",
        "matmul_regions", "name", "notes", "origin", "pitch", "room", "row", "shape", "unwritten", "watched",
        "written_otherwise",
    )  # fmt: skip

    def __init__(
        self,
        id: int,
        name: str,
        buffer: Buffer,
        codec: Codec,
        shape: tuple[int, ...],
        row: int,
        pitch: int,
        *,
        flat: torch.Tensor | None = None,
        address: tuple[int, int] | None = None,
        origin: Any = None,
    ) -> None:
        self.id = id
        self.name = name
        self.buffer = buffer
        self.codec = codec
        self.shape = shape
        self.flat = flat
        """One-dimensional torch tensor of ``codec.carrier``; None where only shapes are followed."""
        self.base = 0 if flat is None else flat.storage_offset()
        self.flats: dict[torch.dtype, torch.Tensor] = {}
        self.address = address
        self.origin = origin
        """The argument that it is, as the caller passed it."""
        self.is_argument = origin is not None
        self.is_dense = True
        """Whether the elements of ``shape`` are adjacent, as those of a sliced argument are not."""
        self.row = row
        """Elements per partition on chip; elsewhere, below dimension 0."""
        self.pitch = pitch
        """Elements of ``flat`` from one partition to the next (on chip); those past ``row`` are nobody's."""
        self.unwritten: int | None = None
        """On chip: elements of each partition from this one on are neither written nor poisoned; None: there are none.

        A tensor is poisoned when it is first used, unless instructions write it in full before, from the first element
        to the last: that nobody can read.
        """
        self.notes: Notes | None = None
        """What is known besides its elements."""
        self.room: Room | None = None
        """Where its bytes go when the kernel drops it; None: a tensor that others may hold."""
        self.bytes: Bytes | None = None
        self.matmul_regions: dict[Any, Any] = {}
        """PSUM: the views that matmuls have written."""
        self.written_otherwise = False
        """PSUM: whether another instruction has written here."""
        self.watched: Any = None
        """What the verifier knows of it."""

    def occupy(self, room: Room, poison: bool) -> None:
        """Take the bytes of a tensor on chip. ``poison`` says whether they show that nothing has been written."""
        self.room = room
        held = self.bytes = room.take()
        self.flat, self.flats = held.flat, held.flats
        if poison:
            self.unwritten = 0

    def __del__(self) -> None:
        if self.room is not None and self.bytes is not None:
            self.room.give(self.bytes)

    def flat_as(self, carrier: torch.dtype) -> torch.Tensor:
        """Return the bytes as one-dimensional tensor of ``carrier``."""
        flat = self.flats.get(carrier)
        if flat is None:
            assert self.flat is not None
            flat = self.flats[carrier] = self.flat.view(carrier)
        return flat

    def in_elements_of(self, how: Codec) -> tuple[int, int]:
        """Return ``row`` and ``pitch``, counted in elements of another type."""
        own, theirs = how.dtype.itemsize, self.codec.dtype.itemsize
        return self.row * theirs // own, self.pitch * theirs // own

    def settle(self) -> None:
        """Write what is still to be written to it or from it, and drop what is noted."""
        notes, self.notes = self.notes, None
        assert notes is not None
        notes.settle(self)

    def write(self, layout: "Layout", offset: int, how: Codec) -> None:
        """Note that an instruction writes all of a view and reads nothing of it."""
        run, first = layout.run, self.unwritten
        assert first is not None
        plain = run and layout.shape[0] == self.shape[0] and how is self.codec and layout.indirection is _NONE
        if not plain or offset > first:
            self.poison()
        elif offset + run > first:
            self.unwritten = offset + run if offset + run < self.row else None

    def poison(self) -> None:
        """Fill what has not been written with what shows that it has not: NaN, or an odd pattern in integers."""
        first, self.unwritten = self.unwritten, None
        assert first is not None
        assert self.flat is not None
        count, value = 1, float("nan")
        flat, dtype = self.flat, self.codec.dtype
        if dtype.kind is not Kind.FLOAT:
            count, value, flat = self.codec.carrier.itemsize, _POISON, self.flat_as(torch.uint8)
        elif not self.codec.carrier.is_floating_point:
            value = 0x7F  # NaN of float8_e4m3
        elif not first:
            flat.fill_(value)
            return
        shape = (self.shape[0], (self.row - first) * count)
        torch.as_strided(flat, shape, (self.pitch * count, 1), first * count).fill_(value)


class Launch:
    """What the cores of one launch share."""

    def __init__(
        self, *, kernel: str, options: Options, lnc: int, computes: bool, observers: tuple[Observer, ...], device: Any
    ) -> None:
        self.kernel = kernel
        self.options = options
        self.lnc = lnc
        self.computes = computes
        self.observers = observers
        self.device = device
        """torch device of the arguments, where results go."""
        self.ids = itertools.count()
        self.shared: list[Memory] = []
        """The tensors of ``nl.shared_hbm`` in the order in which the first core made them."""
        self.plans: dict[Any, Plan] = plans_for(options)
        self.rooms: dict[Any, Room] = {}
        """By shape, type and memory: what tensors on chip take."""
        self.meetings: dict[Any, int] = {}

    def tell(self, event: Event) -> None:
        """Hand ``event`` to the observers."""
        for observer in self.observers:
            observer(event)


_plans: dict[Options, dict[Any, "Plan"]] = {}


def plans_for(options: Options) -> dict[Any, "Plan"]:
    """Return the checked instructions of earlier launches under the same options."""
    return _plans.setdefault(options, {})


class Core:
    """One physical core that runs a kernel."""

    def __init__(self, launch: Launch, index: int) -> None:
        self.launch = launch
        self.index = index
        self.options = launch.options
        self.limits = launch.options.limits
        self.computes = launch.computes
        self.observed = bool(launch.observers)
        self.verifier: CoreVerifier | None = None
        self.plans = launch.plans
        self.issued = 0
        """Instructions so far."""
        self.shared_count = 0
        self.scalar_accumulator: torch.Tensor | None = None
        self.vector_accumulator: torch.Tensor | None = None
        self.generator: torch.Generator | None = None
        self.meet: Callable[[Any, Any], Any] | None = None
        """Waits for the other cores (``launch`` sets it)."""
        self.chain: int | None = None
        """In ``nl.no_reorder``: the instruction before, -1 at the start; None outside."""
        self.names: dict[str, int] = {}
        self.barriers = 0

    def allocate(
        self, shape: Any, dtype: Dtype, buffer: Buffer, name: str = "", address: tuple[int, int] | None = None
    ) -> Memory:
        """Make uninitialised memory.

        Raises :class:`NkiValidationError` for a shape or a place that the buffer does not have.
        """
        if not buffer.on_chip:
            return self._allocate_hbm(shape, dtype, buffer, name, address)
        room = self._room(shape, dtype, buffer)
        if address is not None:
            self._check_address(room.shape, dtype, buffer, address)
        memory = Memory(
            next(self.launch.ids), name, buffer, room.codec, room.shape, room.row, room.pitch, address=address
        )
        if self.verifier is not None:
            self.verifier.allocated(memory)  # first, as what does not fit the chip may not fit this machine
        if self.computes:
            memory.occupy(room, self.options.poison)
        if self.observed:
            self.tell_allocation(memory, self.index)
        return memory

    def _room(self, shape: Any, dtype: Dtype, buffer: Buffer) -> Room:
        known, key = self.launch.rooms, (shape, dtype, buffer)
        try:
            made = known.get(key)
        except TypeError:  # a list
            made = None
        if made is None:
            sizes = self._checked_shape(shape, buffer)
            how = codec(dtype, precise=self.options.precise, saturate=self.options.saturate_fp8)
            made = Room(sizes, how)
            if type(shape) is tuple and all(type(size) is int for size in shape):
                known[key] = made
        return made

    def _allocate_hbm(
        self, shape: Any, dtype: Dtype, buffer: Buffer, name: str, address: tuple[int, int] | None
    ) -> Memory:
        shape = self._checked_shape(shape, buffer)
        how = codec(dtype, saturate=self.options.saturate_fp8)
        if address is not None:
            self._check_address(shape, dtype, buffer, address)
        if buffer is Buffer.shared_hbm:
            return self._allocate_shared(shape, how, name)
        memory = self._hbm(shape, how, buffer, name)
        if self.verifier is not None:
            self.verifier.allocated(memory)
        if self.observed:
            self.tell_allocation(memory, self.index)
        return memory

    def _hbm(self, shape: tuple[int, ...], how: Codec, buffer: Buffer, name: str) -> Memory:
        row = row_of(shape)
        return Memory(next(self.launch.ids), name, buffer, how, shape, row, row, flat=self._fresh(shape, how))

    def _allocate_shared(self, shape: tuple[int, ...], how: Codec, name: str) -> Memory:
        place = self.shared_count
        self.shared_count += 1
        shared = self.launch.shared
        if place < len(shared):
            memory = shared[place]
            if memory.shape != shape or memory.codec is not how:
                raise violation(
                    "shared-allocation",
                    f"Core {self.index} allocates nl.shared_hbm tensor number {place} as {how.dtype} {shape}, another "
                    f"core has {memory.codec.dtype} {memory.shape}",
                    limit=(memory.codec.dtype, memory.shape),
                    actual=(how.dtype, shape),
                    advice="Make the same tensors in the same order on every core, or use nl.private_hbm.",
                )
            return memory
        memory = self._hbm(shape, how, Buffer.shared_hbm, name)
        shared.append(memory)
        if self.verifier is not None:
            self.verifier.allocated(memory)
        if self.observed:
            self.tell_allocation(memory, None)
        return memory

    def _checked_shape(self, shape: Any, buffer: Buffer) -> tuple[int, ...]:
        if type(shape) is int:
            shape = (shape,)
        try:
            sizes = tuple(size.__index__() for size in shape)
        except (TypeError, AttributeError):
            sizes = (0,)
        if any(size < 1 for size in sizes):
            raise violation(
                "shape",
                f"A tensor has the shape {shape!r}",
                limit="positive integers",
                actual=shape,
                advice="Give a tuple of positive integers.",
            )
        if buffer.on_chip:
            if len(sizes) < 2:
                raise violation(
                    "shape",
                    f"A tensor in {buffer.name} has the shape {sizes}",
                    limit="2 dimensions or more",
                    actual=len(sizes),
                    advice="The first dimension is the partition: add one of size 1.",
                )
            if sizes[0] > PARTITIONS:
                raise violation(
                    "partition-limit",
                    f"A tensor in {buffer.name} has the shape {sizes}, with {sizes[0]} partitions of {PARTITIONS}",
                    limit=PARTITIONS,
                    actual=sizes[0],
                    advice=f"Split dimension 0 into tiles of at most {PARTITIONS}.",
                )
        return sizes

    def _check_address(self, shape: tuple[int, ...], dtype: Dtype, buffer: Buffer, address: tuple[int, int]) -> None:
        room = {Buffer.sbuf: self.limits.sbuf_bytes, Buffer.psum: PSUM_BYTES}.get(buffer)
        nbytes = dtype.itemsize
        for size in shape[1:]:
            nbytes *= size
        if (
            room is None
            or len(address) != 2
            or not 0 <= address[0] <= PARTITIONS - shape[0]
            or not 0 <= address[1] <= room - nbytes
        ):
            raise violation(
                "address",
                f"A tensor of {shape[0]} partitions and {nbytes} bytes in each is placed at {address} in {buffer.name}",
                limit=(PARTITIONS, room),
                actual=address,
                advice="Give (first partition, first byte) in SBUF or PSUM.",
            )

    def _fresh(self, shape: tuple[int, ...], how: Codec) -> torch.Tensor | None:
        if not self.computes:
            return None
        count = 1
        for size in shape:
            count *= size
        if not self.options.poison:
            return torch.empty(count, dtype=how.carrier)
        if how.dtype.kind is Kind.FLOAT and how.carrier.is_floating_point:
            return torch.full((count,), torch.nan, dtype=how.carrier)
        if how.dtype.kind is Kind.FLOAT:
            return torch.full((count,), 0x7F, dtype=how.carrier)  # NaN of float8_e4m3
        return torch.full((count * how.dtype.itemsize,), _POISON, dtype=torch.uint8).view(how.carrier)

    def tell_allocation(self, memory: Memory, core: int | None) -> None:
        """Hand the record of ``memory`` to the observers."""
        size = memory.codec.dtype.itemsize
        total = memory.row * memory.shape[0] if memory.shape else 1
        on_chip = memory.buffer.on_chip
        self.launch.tell(
            Allocation(
                id=memory.id,
                name=memory.name,
                buffer=memory.buffer,
                dtype=str(memory.codec.dtype),
                shape=memory.shape,
                core=core,
                partitions=memory.shape[0] if on_chip else 1,
                bytes_per_partition=(memory.row if on_chip else total) * size,
                address=memory.address,
                is_argument=memory.is_argument,
                source=None if memory.is_argument else source.kernel_line(),
            )
        )

    def keep(self, key: Any, plan: "Plan") -> "Plan":
        """Remember a checked instruction."""
        if len(self.plans) >= _MAX_PLANS:
            self.plans.clear()
        self.plans[key] = plan
        return plan


class _Running(threading.local):
    core: Core | None = None


running = _Running()


def current_core() -> Core:
    """Return the core that runs in this thread. Raises :class:`NkiLaunchError` outside of a kernel."""
    core = running.core
    if core is None:
        raise NkiLaunchError(
            "No kernel is running here, so there is no core to execute the instruction on. Call it from a function "
            "decorated with @nki.jit."
        )
    return core


def maybe_core() -> Core | None:
    """Return the core that runs in this thread, or None."""
    return running.core


def set_core(core: Core | None) -> Core | None:
    """Make ``core`` run in this thread and return the one that did before."""
    before, running.core = running.core, core
    return before


def violation(rule: str, what: str, *, limit: Any, actual: Any, advice: str) -> NkiValidationError:
    """Build the error of a broken rule, with the kernel's line."""
    line = source.kernel_line()
    where = f" ({line})" if line is not None else ""
    return NkiValidationError(f"{what}{where}. {advice} [{rule}]", rule=rule, limit=limit, actual=actual, source=line)
