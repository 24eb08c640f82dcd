"""When each instruction of a kernel would run: engines in order, DMA as bandwidth allows, results before their use."""

import heapq
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field

from torch_neuronx_nki.cost.figures import FIGURES, Figures
from torch_neuronx_nki.cost.work import Work, work_of
from torch_neuronx_nki.engines import Buffer, Engine
from torch_neuronx_nki.targets import GEN3, LIMITS
from torch_neuronx_nki.trace import (
    Access,
    Allocation,
    Dependency,
    Event,
    Instruction,
    LaunchStarted,
    Operand,
    SourceLocation,
)
from torch_neuronx_nki.verifier.capacity import Ledger, limit_of

DMA = "dma"
HBM = "hbm"
_MAX_TRACKED = 32


@dataclass(frozen=True, slots=True)
class Slice:
    """One instruction on the timeline. Seconds from the start of the kernel."""

    core: int
    lane: str
    """Engine, or ``dma``."""
    start: float
    end: float
    """When the result is there; the engine is free at ``start + work.busy``."""
    work: Work
    opcode: str
    name: str
    index: int
    source: SourceLocation | None
    waits_for: str
    """What it waited for last: ``engine``, ``data``, ``room``, ``cores``, or nothing."""


@dataclass(slots=True)
class Timeline:
    """A scheduled kernel."""

    kernel: str = ""
    target: str = GEN3.target
    lnc: int = 1
    figures: Figures = field(default_factory=lambda: FIGURES[GEN3.generation])
    slices: list[Slice] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """How long the kernel takes."""
        return max((piece.end for piece in self.slices), default=0.0)


Box = tuple[int, int, int, int]


class _Uses:
    """When parts of an allocation were last written or read."""

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: list[tuple[Box, float, str]] = []

    def after(self, box: Box, but: str = "") -> float:
        return max((end for other, end, lane in self.entries if lane != but and _meet(box, other)), default=0.0)

    def add(self, box: Box, end: float, lane: str) -> None:
        first, last, low, high = box
        self.entries = [
            entry
            for entry in self.entries
            if entry[1] > end or not (
                first <= entry[0][0] and entry[0][1] <= last and low <= entry[0][2] and entry[0][3] <= high
            )
        ]  # fmt: skip
        self.entries.append((box, end, lane))
        if len(self.entries) > _MAX_TRACKED:
            boxes = [entry[0] for entry in self.entries[: _MAX_TRACKED // 2]]
            merged = (
                min(box[0] for box in boxes), max(box[1] for box in boxes),
                min(box[2] for box in boxes), max(box[3] for box in boxes),
            )  # fmt: skip
            latest = max(entry[1] for entry in self.entries[: _MAX_TRACKED // 2])
            self.entries = [(merged, latest, ""), *self.entries[_MAX_TRACKED // 2 :]]


class _Server:
    """Something that does one thing at a time, in any order: gaps are filled."""

    __slots__ = ("ends", "starts")

    def __init__(self) -> None:
        self.starts: list[float] = []
        self.ends: list[float] = []

    def reserve(self, ready: float, length: float) -> float:
        """Take the first gap of ``length`` from ``ready`` on and return its start."""
        at = bisect_right(self.ends, ready)
        start = ready
        while at < len(self.starts) and self.starts[at] - start < length:
            start = max(start, self.ends[at])
            at += 1
        if length <= 0.0:
            return start
        joins_before = at > 0 and self.ends[at - 1] >= start
        joins_after = at < len(self.starts) and self.starts[at] <= start + length
        if joins_before and joins_after:
            self.ends[at - 1] = self.ends[at]
            del self.starts[at], self.ends[at]
        elif joins_before:
            self.ends[at - 1] = start + length
        elif joins_after:
            self.starts[at] = start
        else:
            self.starts.insert(at, start)
            self.ends.insert(at, start + length)
        return start


class _Room:
    """Space in SBUF or PSUM that tensors of the compiler's choice share."""

    def __init__(self, buffer: Buffer, limit: int) -> None:
        self.ledger = Ledger(buffer)
        self.limit = limit * 4
        self.used = 0
        self.leaving: list[tuple[float, int]] = []

    def enter(self, size: int) -> float:
        """Take ``size`` and return when there is room for it."""
        ready = 0.0
        while self.used + size > self.limit and self.leaving:
            ready, freed = heapq.heappop(self.leaving)
            self.used -= freed
        self.used += size
        return ready

    def leave(self, when: float, size: int) -> None:
        heapq.heappush(self.leaving, (when, size))


class _Core:
    def __init__(self, sbuf_bytes: int) -> None:
        self.free: dict[str, float] = {}
        self.dma = _Server()
        self.hbm = _Server()
        self.rooms = {buffer: _Room(buffer, limit_of(buffer, sbuf_bytes)) for buffer in (Buffer.sbuf, Buffer.psum)}
        self.floor = 0.0
        """Nothing starts before the cores' last meeting."""
        self.end = 0.0
        self.stationary: tuple[object, ...] | None = None
        self.ends: dict[int, float] = {}


def schedule(events: Iterable[Event]) -> Timeline:
    """Lay out the events of one launch in time.

    Engines run their instructions in program order. An instruction waits for what it reads, for the readers and
    writers of what it overwrites, for room in SBUF and PSUM, and for the other core where they meet. DMA transfers
    share the DMA engines and HBM, and start as soon as their data and their room are there.
    """
    events = list(events)
    timeline = Timeline()
    last_use: dict[int, int] = {}
    allocations: dict[int, Allocation] = {}
    later: dict[tuple[int, int], list[int]] = {}
    sbuf_bytes = GEN3.sbuf_bytes
    for position, event in enumerate(events):
        if isinstance(event, LaunchStarted):
            timeline.kernel, timeline.target, timeline.lnc = event.kernel, event.target, event.lnc
            timeline.figures = FIGURES[event.generation]
            sbuf_bytes = next(one for one in LIMITS.values() if one.generation == event.generation).sbuf_bytes
        elif isinstance(event, Allocation):
            allocations[event.id] = event
        elif isinstance(event, Instruction):
            for operand in event.operands:
                last_use[operand.allocation] = position
        elif isinstance(event, Dependency):
            later.setdefault((event.core, event.later), []).append(event.earlier)
    cores = [_Core(sbuf_bytes) for _ in range(timeline.lnc)]
    writes: dict[int, _Uses] = {}
    reads: dict[int, _Uses] = {}
    meetings: dict[tuple[tuple[int, ...], int | None], float] = {}
    entered: dict[int, int] = {}
    for position, event in enumerate(events):
        if not isinstance(event, Instruction):
            continue
        core = cores[event.core]
        lane = DMA if event.dma is not None else event.engine.name
        stationary = _stationary(event)
        work = work_of(
            event, timeline.figures, stationary_is_loaded=stationary is not None and stationary == core.stationary
        )
        if stationary is not None:
            core.stationary = stationary
        ready, waits = core.floor, "cores" if core.floor else ""
        if event.cores and len(event.cores) > 1:
            key = (event.cores, event.meeting)
            if key not in meetings:
                meetings[key] = max(cores[other].end for other in event.cores if other < len(cores))
            ready, waits = max(ready, meetings[key]), "cores"
        for operand in event.operands:
            data = _data_ready(operand, lane, writes, reads)
            if data > ready:
                ready, waits = data, "data"
            made = allocations.get(operand.allocation)
            if made is not None and made.buffer.on_chip and made.address is None and made.id not in entered:
                room = core.rooms[made.buffer]
                entered[made.id] = room.ledger.demand(made.partitions, made.bytes_per_partition)
                space = room.enter(entered[made.id])
                if space > ready:
                    ready, waits = space, "room"
        for earlier in later.get((event.core, event.index), ()):
            ready = max(ready, core.ends.get(earlier, 0.0))
        if lane == DMA:
            start = core.dma.reserve(ready, work.busy)
            start = max(start, core.hbm.reserve(start, work.hbm_seconds))
        else:
            start = max(ready, core.free.get(lane, 0.0))
            core.free[lane] = start + work.busy
        if start > ready:
            waits = "engine"
        end = start + work.latency
        core.ends[event.index] = end
        core.end = max(core.end, end)
        if event.cores and len(event.cores) > 1:
            core.floor = max(core.floor, end)
            if event.opcode == "core_barrier" and event.operands:
                written = writes.setdefault(event.operands[0].allocation, _Uses())
                written.entries.clear()
        for operand in event.operands:
            uses = reads if operand.access is Access.READ else writes
            if event.opcode != "core_barrier":
                uses.setdefault(operand.allocation, _Uses()).add(_box(operand), end, lane)
            if last_use.get(operand.allocation) == position and operand.allocation in entered:
                core.rooms[operand.buffer].leave(end, entered.pop(operand.allocation))
                writes.pop(operand.allocation, None)
                reads.pop(operand.allocation, None)
                last_use.pop(operand.allocation)
        timeline.slices.append(
            Slice(event.core, lane, start, end, work, event.opcode, event.name, event.index, event.source, waits)
        )
    return timeline


def _data_ready(operand: Operand, lane: str, writes: dict[int, _Uses], reads: dict[int, _Uses]) -> float:
    box = _box(operand)
    ready = 0.0
    # an engine's own instructions run in order, and products that add up in PSUM follow one another at once
    own = lane if operand.access is not Access.READ and lane == Engine.tensor.name else ""
    written = writes.get(operand.allocation)
    if written is not None and (operand.access is Access.READ or operand.buffer.on_chip):
        ready = written.after(box, own)
    if operand.access is not Access.READ and operand.buffer.on_chip:
        read = reads.get(operand.allocation)
        if read is not None:
            ready = max(ready, read.after(box, lane if lane != DMA else ""))
    return ready


def _stationary(event: Instruction) -> tuple[object, ...] | None:
    if event.matmul is None:
        return None
    for operand in event.operands:
        if operand.name == "stationary":
            return operand.allocation, operand.offset, operand.shape, operand.strides, event.matmul.tile_position
    return None


def _box(operand: Operand) -> Box:
    return (
        operand.partition, operand.partition + operand.partitions, operand.first_byte, operand.end_byte
    )  # fmt: skip


def _meet(one: Box, other: Box) -> bool:
    return one[0] < other[1] and other[0] < one[1] and one[2] < other[3] and other[2] < one[3]
