"""Follows what a kernel does and finds what no single instruction shows.

The simulator hands over each instruction as it is issued (:meth:`CoreVerifier.step`), which costs little;
:meth:`Verifier.observe` takes the records of :mod:`torch_neuronx_nki.trace` instead. Both look at the same things:
which elements have been written, what is live, which addresses overlap, what two cores do between their meetings.
"""

import warnings
import weakref
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch_neuronx_nki import source, trace
from torch_neuronx_nki.engines import Buffer
from torch_neuronx_nki.errors import NkiValidationError, NkiWarning
from torch_neuronx_nki.options import Verify
from torch_neuronx_nki.targets import GEN3, LIMITS, PSUM_BANK_BYTES, CoreLimits
from torch_neuronx_nki.tensors import NkiTensor
from torch_neuronx_nki.trace import Access, SourceLocation
from torch_neuronx_nki.verifier.capacity import Ledger, limit_of
from torch_neuronx_nki.verifier.coverage import Coverage, View, in_units, overlap, span, strided
from torch_neuronx_nki.verifier.findings import Finding, Findings, Severity
from torch_neuronx_nki.verifier.registry import REGISTRY

if TYPE_CHECKING:
    from torch_neuronx_nki.issue import Opcode, Plan
    from torch_neuronx_nki.machine import Core, Launch, Memory

_MEETINGS = frozenset({"core_barrier", "sendrecv"})
_LARGEST = 1 << 28
"""Elements of an allocation beyond which it is taken as written: a mask would need as many bytes."""
_MAX_CHECKED = 4096

Roles = tuple[tuple[tuple[int, str], ...], tuple[int, ...]]
"""Positions and names of the operands that an instruction reads, and positions of those that it writes."""

sink: ContextVar[Findings | None] = ContextVar("torch_neuronx_nki_findings", default=None)
"""Where findings go instead of being raised, and a kernel runs on after them."""


@dataclass(frozen=True, slots=True, eq=False)
class Extent:
    """What allocations of one shape, type and memory have in common."""

    buffer: Buffer
    elements: int
    itemsize: int
    partitions: int
    row_bytes: int

    @property
    def multibank(self) -> bool:
        """Whether it takes more than one bank of PSUM."""
        return self.buffer is Buffer.psum and self.row_bytes > PSUM_BANK_BYTES


class State:
    """What is known of one allocation."""

    __slots__ = (
        "__weakref__", "_written", "address", "buffer", "clobbered", "elements", "extent", "front", "id", "is_argument",
        "ledger", "matmuls", "name", "neighbours", "place", "plain", "shared", "source",
    )  # fmt: skip

    def __init__(
        self,
        extent: Extent,
        *,
        id: int,
        name: str,
        address: tuple[int, int] | None,
        is_argument: bool,
        source: SourceLocation | None,
    ) -> None:
        self.id = id
        self.name = name
        self.extent = extent
        self.buffer = extent.buffer
        self.elements = extent.elements
        self.address = address
        self.is_argument = is_argument
        self.source = source
        self._written: Coverage | None = None
        self.matmuls: Coverage | None = None
        """PSUM, from records: what matmuls have written."""
        self.ledger: Ledger | None = None
        self.place = 0
        self.neighbours: tuple[weakref.ref[State], ...] = ()
        """Allocations that the kernel placed over the same bytes."""
        self.clobbered: SourceLocation | None = None
        """Where a neighbour was last written over it."""
        self.shared: Shared | None = None
        self.plain = False
        """Whether nothing more can be found here: written in full, in one core's hands, with no neighbours."""
        self.front = 0
        """Elements of every partition that have been written in order from the first; -1: ``written`` says."""
        if address is not None or is_argument or not extent.buffer.on_chip:
            self.front = -1
            self.settle()

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.extent.itemsize

    @property
    def partitions(self) -> int:
        """Partitions that it takes on chip; elsewhere 1."""
        return self.extent.partitions

    @property
    def row_bytes(self) -> int:
        """Bytes of a partition on chip; elsewhere all."""
        return self.extent.row_bytes

    @property
    def written(self) -> Coverage:
        """Which elements hold values."""
        made = self._written
        if made is None:
            full = self.is_argument or self.elements > _LARGEST
            made = self._written = Coverage(self.elements, self.itemsize, full=full)
            front, self.front = self.front, -1
            if front > 0:
                row = self.row_bytes // self.itemsize
                made.add(((self.partitions, front), (row, 1), 0, self.itemsize))
        return made

    def advance(self, run: int) -> None:
        """Note that the next ``run`` elements of every partition hold values."""
        self.front += run
        extent = self.extent
        if self.front * extent.itemsize == extent.row_bytes:
            self.settle()

    def settle(self) -> None:
        """Note whether anything can still be found."""
        full = self.front * self.itemsize == self.row_bytes if self.front >= 0 else self.written.full
        self.plain = (
            full and self.shared is None and not self.neighbours
            and (self.ledger is None or self.ledger.first[self.place] >= 0)
        )  # fmt: skip

    def label(self) -> str:
        """Return how messages call it."""
        made = "" if self.source is None else f" of line {self.source.line}"
        return f"the {self.buffer.name} tensor{f' {self.name!r}' if self.name else made}"


class _Touched:
    """What one core did to a shared tensor since the cores last met."""

    __slots__ = ("lines", "meeting", "reads", "writes")

    def __init__(self, state: State) -> None:
        self.meeting = -1
        self.reads = Coverage(state.elements, state.itemsize)
        self.writes = Coverage(state.elements, state.itemsize)
        self.lines: dict[bool, SourceLocation | None] = {}


class Shared:
    """What the cores did to a tensor that they share."""

    __slots__ = ("cores",)

    def __init__(self) -> None:
        self.cores: dict[int, _Touched] = {}


class Verifier:
    """Verifies the kernels of one launch, or of a stream of records."""

    def __init__(
        self,
        *,
        mode: Verify = Verify.strict,
        findings: Findings | None = None,
        kernel: str = "",
        limits: CoreLimits = GEN3,
        lnc: int = 1,
    ) -> None:
        self.mode = mode
        self.findings = Findings() if findings is None else findings
        self.collects = findings is not None
        """Whether findings are only kept."""
        self.kernel = kernel
        self.lnc = lnc
        self.limits = limits
        self.cores: dict[int, CoreVerifier] = {}
        self._states: dict[int, State] = {}

    def core(self, index: int) -> "CoreVerifier":
        """Return what is known of one core."""
        made = self.cores.get(index)
        if made is None:
            made = self.cores[index] = CoreVerifier(self, index)
        return made

    def found(
        self, rule: str, message: str, *, limit: Any, actual: Any, source: SourceLocation | None, hint: str = ""
    ) -> None:
        """Keep, warn of, or raise a finding. Raises :class:`NkiValidationError` for errors where it is strict."""
        entry = REGISTRY[rule]
        finding = Finding(
            entry.code, rule, entry.severity, message, limit, actual, hint or entry.hint, source, self.kernel
        )
        if not self.findings.add(finding) or self.collects or entry.severity is Severity.NOTE:
            return
        if self.mode is Verify.strict and entry.severity is Severity.ERROR:
            raise NkiValidationError(finding.text(), rule=rule, limit=limit, actual=actual, source=source)
        warnings.warn(finding.text(), NkiWarning, stacklevel=6)

    def finish(self, outputs: tuple[State, ...] = ()) -> list[Finding]:
        """Look at what only the whole kernel shows, and return all findings."""
        for core in self.cores.values():
            for buffer, ledger in core.ledgers.items():
                peak = ledger.peak()
                limit = limit_of(buffer, self.limits.sbuf_bytes)
                if peak.used > limit:
                    what = "bytes per partition" if buffer is Buffer.sbuf else "banks"
                    largest = ", ".join(
                        f"{amount:g} from line {place.line}" if (place := ledger.lines[number]) else f"{amount:g}"
                        for number, amount in peak.tensors
                    )
                    self.found(
                        f"{buffer.name}-capacity",
                        f"At instruction {peak.instruction}, {peak.used:g} {what} of {buffer.name} are live: {largest}",
                        limit=limit,
                        actual=peak.used,
                        source=ledger.lines[peak.tensors[0][0]],
                    )
        for state in outputs:
            if not state.is_argument and not state.written.full and state.written.count() == 0:
                self.found(
                    "output-unwritten",
                    f"The kernel returns {state.label()} and never writes to it",
                    limit=state.elements,
                    actual=0,
                    source=state.source,
                )
        return self.findings.items

    # Records ----------------------------------------------------------------------------------------------------------

    def observe(self, event: trace.Event) -> None:
        """Take one record. A stream has the events of one launch after the other."""
        if isinstance(event, trace.Instruction):
            self._instruction(event)
        elif isinstance(event, trace.Allocation):
            self._allocation(event)
        elif isinstance(event, trace.Dependency):
            if event.earlier > event.later:
                self.core(event.core).out_of_order(event.earlier, event.later, None)
        elif isinstance(event, trace.LaunchStarted):
            self.kernel, self.lnc = event.kernel, event.lnc
            self.limits = next(limits for limits in LIMITS.values() if limits.generation == event.generation)
            self.cores.clear()
            self._states.clear()
        elif event.error is None:
            self.finish(tuple(self._states[output] for output in event.outputs if output in self._states))
        elif isinstance(event.error, NkiValidationError) and event.error.rule in REGISTRY:
            self.add_error(event.error)

    def add_error(self, error: NkiValidationError) -> None:
        """Keep what the simulator raised as a finding."""
        entry = REGISTRY[error.rule]
        self.findings.add(
            Finding(
                entry.code, error.rule, entry.severity, str(error), error.limit, error.actual, entry.hint, error.source,
                self.kernel,
            )
        )  # fmt: skip

    def _allocation(self, event: trace.Allocation) -> None:
        elements = 1
        for size in event.shape:
            elements *= size
        itemsize = max(event.nbytes // max(elements, 1), 1)
        state = State(
            Extent(event.buffer, elements, itemsize, event.partitions, event.bytes_per_partition),
            id=event.id,
            name=event.name,
            address=event.address,
            is_argument=event.is_argument,
            source=event.source,
        )
        self._states[event.id] = state
        self.core(event.core or 0).enter(state)

    def _instruction(self, event: trace.Instruction) -> None:
        core = self.core(event.core)
        if event.opcode in _MEETINGS:
            core.meetings += 1
            if event.opcode == "core_barrier":
                return
        place = event.source
        reads = [operand for operand in event.operands if operand.access is Access.READ]
        writes = [operand for operand in event.operands if operand.access is not Access.READ]
        seen: list[tuple[State, View, bool]] = []
        for operand in (*reads, *writes):
            state = self._states.get(operand.allocation)
            if state is None:
                continue
            core.live(state, event.index)
            view = (operand.shape, operand.strides, operand.offset, operand.itemsize)
            writing = operand.access is not Access.READ
            if not writing:
                core.read(state, view, view, operand.indirect, operand.name, place)
            else:
                for other, read_view, indirect in seen:
                    if other is state and not operand.indirect and not indirect and read_view != view:
                        core.alias(event.dma is not None, state, view, read_view, place)
                if event.matmul is not None:
                    core.bank(state, view, place)
                    self._accumulation(state, view, event)
                core.write(state, view, view, operand.indirect, place)
            if not writing:
                seen.append((state, view, operand.indirect))

    def _accumulation(self, state: State, view: View, event: trace.Instruction) -> None:
        if state.matmuls is None:
            state.matmuls = Coverage(state.elements, state.itemsize)
        assert event.matmul is not None
        if event.matmul.accumulates and not state.matmuls.covers(view):
            self.found(
                "psum-accumulate",
                f"nisa.{event.opcode}: dst adds to {view[0]} of PSUM that no matmul has written",
                limit="elements that matmuls have written",
                actual=view[0],
                source=event.source,
            )
        state.matmuls.add(view)


class CoreVerifier:
    """What the verifier knows of one core."""

    def __init__(self, verifier: Verifier, index: int) -> None:
        self.verifier = verifier
        self.index = index
        self.ledgers = {Buffer.sbuf: Ledger(Buffer.sbuf), Buffer.psum: Ledger(Buffer.psum)}
        self.placed: list[weakref.ref[State]] = []
        self.meetings = 0
        self._roles: dict[Any, Roles] = {}
        self._extents: dict[Any, Extent] = {}
        """By shape, type and memory."""
        self._demands: dict[Extent, tuple[Ledger, int] | None] = {}
        """What a tensor takes of which memory; None: more than there is."""
        self._in_a_bank: set[Any] = set()
        """Views of more than one bank of PSUM that lie within one."""
        self._apart: set[Any] = set()
        """Pairs of views of one allocation that do not overlap, or that have been reported."""

    # Allocations ------------------------------------------------------------------------------------------------------

    def allocated(self, memory: "Memory") -> None:
        """Take a new allocation."""
        key = (memory.shape, memory.codec, memory.buffer)
        extent = self._extents.get(key)
        if extent is None:
            itemsize, on_chip = memory.codec.dtype.itemsize, memory.buffer.on_chip
            elements = memory.row * (memory.shape[0] if memory.shape else 1)
            partitions, row = (memory.shape[0], memory.row) if on_chip else (1, elements)
            extent = Extent(memory.buffer, elements, itemsize, partitions, row * itemsize)
            self._extents[key] = extent
        memory.watched = state = State(
            extent,
            id=memory.id,
            name=memory.name,
            address=memory.address,
            is_argument=memory.is_argument,
            source=None if memory.is_argument else source.kernel_line(3),  # from Core.allocate, by nl.ndarray
        )
        self.enter(state)

    def adopt(self, memory: "Memory") -> State:
        """Return what is known of memory that came to be without an allocation: it holds values."""
        state: State | None = memory.watched
        if state is None:
            elements = memory.row * (memory.shape[0] if memory.shape else 1)
            memory.watched = state = State(
                Extent(memory.buffer, elements, memory.codec.dtype.itemsize, 1, 0),
                id=memory.id,
                name=memory.name,
                address=None,
                is_argument=True,
                source=None,
            )
            if memory.buffer is Buffer.shared_hbm and self.verifier.lnc > 1:
                state.shared = Shared()
                state.settle()
        return state

    def enter(self, state: State) -> None:
        """Begin to follow an allocation."""
        if state.buffer.on_chip:
            if state.address is not None:
                self._placed(state)
                state.settle()
                return
            known = self._demands.get(state.extent) or self._demanded(state)
            if known is not None:
                ledger, demand = known
                state.ledger, state.place = ledger, ledger.open(demand, state.source)
            return
        if state.buffer is Buffer.shared_hbm and self.verifier.lnc > 1:
            state.shared = Shared()
        state.settle()

    def _demanded(self, state: State) -> tuple[Ledger, int] | None:
        """Return what a tensor takes of its memory, or report that there is not as much."""
        ledger = self.ledgers[state.buffer]
        limit = limit_of(state.buffer, self.verifier.limits.sbuf_bytes)
        needs = ledger.demand(128, state.row_bytes) // 4
        if needs > limit:
            self.verifier.found(
                f"{state.buffer.name}-capacity",
                f"A tensor of {state.row_bytes} bytes per partition does not fit {state.buffer.name}",
                limit=limit,
                actual=needs,
                source=state.source,
            )
            return None
        made = self._demands[state.extent] = (ledger, ledger.demand(state.partitions, state.row_bytes))
        return made

    def _placed(self, state: State) -> None:
        assert state.address is not None
        partition, byte = state.address
        if state.buffer is Buffer.psum and byte % PSUM_BANK_BYTES:
            self.verifier.found(
                "psum-address",
                f"A tensor in psum is placed at byte {byte}",
                limit=f"multiples of {PSUM_BANK_BYTES}",
                actual=byte,
                source=state.source,
            )
        alive = []
        for reference in self.placed:
            other = reference()
            if other is None:
                continue
            alive.append(reference)
            assert other.address is not None
            first, start = other.address
            if (
                other.buffer is state.buffer
                and first < partition + state.partitions
                and partition < first + other.partitions
                and start < byte + state.row_bytes
                and byte < start + other.row_bytes
            ):
                other.neighbours += (weakref.ref(state),)
                other.settle()
                state.neighbours += (reference,)
        self.placed = [*alive, weakref.ref(state)]

    # Instructions -----------------------------------------------------------------------------------------------------

    def step(self, index: int, op: "Opcode", plan: "Plan", operands: tuple[Any, ...]) -> None:
        """Take an instruction that is about to run."""
        roles = self._roles.get(plan)
        if roles is None:
            roles = self._roles_of(op, plan, operands)
        reads, writes = roles
        first = operands[0]
        target = first.memory if type(first) is NkiTensor else None
        for position, label in reads:
            x = operands[position]
            memory = x.memory
            state = memory.watched
            if state is None:
                state = self.adopt(memory)
            ledger = state.ledger
            if ledger is not None:
                ledger.last[state.place] = index
            if not state.plain:
                self._reads(state, x, label, index)
            if memory is target and position and x is not first:
                self._maybe_alias(plan, state, first, x)
            if x.indirection is not None:
                self._index(x, index)
        for position in writes:
            x = operands[position]
            memory, layout = x.memory, x.layout
            state = memory.watched
            if state is None:
                state = self.adopt(memory)
            ledger = state.ledger
            if ledger is not None:
                ledger.last[state.place] = index
            if plan.matmul is not None and (layout, x.offset) not in self._in_a_bank:
                self._in_one_bank(state, x)
            if state.plain:
                pass
            elif (
                state.front == x.offset
                and layout.run
                and layout.shape[0] == state.extent.partitions
                and layout.codec is memory.codec
                and x.indirection is None
                and not x.traced
            ):
                if ledger is not None and ledger.first[state.place] < 0:
                    ledger.first[state.place] = index
                state.advance(layout.run)
            else:
                self._writes(state, x, index)
            if x.indirection is not None:
                self._index(x, index)

    def met(self, op: "Opcode", operands: tuple[Any, ...], plan: "Plan", index: int) -> None:
        """Take an instruction in which cores or ranks have met."""
        if op.name != "core_barrier":
            self.step(index, op, plan, operands)
        if op.name in _MEETINGS:
            self.meetings += 1

    def _roles_of(self, op: "Opcode", plan: "Plan", operands: tuple[Any, ...]) -> Roles:
        if len(self._roles) > _MAX_CHECKED:
            self._roles.clear()
        tensors = [
            (position, label, access)
            for position, ((label, access), x) in enumerate(zip(op.operands, operands, strict=True))
            if type(x) is NkiTensor
        ]
        made = self._roles[plan] = (
            tuple((position, label) for position, label, access in tensors if access is Access.READ),
            tuple(position for position, _, access in tensors if access is not Access.READ),
        )
        return made

    def _in_one_bank(self, state: State, x: NkiTensor) -> None:
        """Look at which banks a matmul writes to, and remember a view that lies within one.

        Views of one layout are of tensors with equally long partitions.
        """
        if not state.extent.multibank or self.bank(state, (x.shape, x.strides, x.offset, x.dtype.itemsize), None):
            if len(self._in_a_bank) > _MAX_CHECKED:
                self._in_a_bank.clear()
            self._in_a_bank.add((x.layout, x.offset))

    def _index(self, x: NkiTensor, index: int) -> None:
        tensor = getattr(x.indirection, "index", None)
        if type(tensor) is NkiTensor:
            state = self.adopt(tensor.memory)
            if state.ledger is not None:
                state.ledger.last[state.place] = index
            if not state.plain:
                self._reads(state, tensor, "index", index)

    def _reads(self, state: State, x: NkiTensor, label: str, index: int) -> None:
        key = (x.layout, x.offset)
        if state.shared is None and key in state.written.known:
            return
        self.live(state, index)
        view = (x.shape, x.strides, x.offset, x.codec.dtype.itemsize)
        self.read(state, view, key, x.indirection is not None or x.traced, label, None)

    def _writes(self, state: State, x: NkiTensor, index: int) -> None:
        key = (x.layout, x.offset)
        if state.shared is None and not state.neighbours and key in state.written.known:
            return
        self.live(state, index)
        view = (x.shape, x.strides, x.offset, x.codec.dtype.itemsize)
        self.write(state, view, key, x.indirection is not None or x.traced, None)

    def _maybe_alias(self, plan: "Plan", state: State, first: NkiTensor, x: NkiTensor) -> None:
        if x.layout is first.layout and x.offset == first.offset:
            return
        if x.indirection is not None or first.indirection is not None or x.traced or first.traced:
            return
        key = (first.layout, first.offset, x.layout, x.offset)
        if key in self._apart:
            return
        if len(self._apart) > _MAX_CHECKED:
            self._apart.clear()
        self._apart.add(key)
        one = (first.shape, first.strides, first.offset, first.codec.dtype.itemsize)
        other = (x.shape, x.strides, x.offset, x.codec.dtype.itemsize)
        self.alias(plan.dma is not None, state, one, other, None)

    # What is looked at ------------------------------------------------------------------------------------------------

    def live(self, state: State, index: int) -> None:
        """Note that an instruction names an allocation."""
        ledger = state.ledger
        if ledger is not None:
            if ledger.first[state.place] < 0:
                ledger.first[state.place] = index
                state.settle()
            ledger.last[state.place] = index

    def read(
        self, state: State, view: View, key: Any, indirect: bool, label: str, place: SourceLocation | None
    ) -> None:
        """Look at what an instruction reads."""
        if state.shared is not None:
            self._race(state, view, key, indirect, False, place)
        written = state.written
        if written.full or indirect or written.covers(view, key):
            return
        place = place or source.kernel_line()
        if state.clobbered is not None:
            self.verifier.found(
                "address-overlap",
                f"{label} reads {state.label()}, over which line {state.clobbered.line} has written another tensor",
                limit="disjoint addresses while both are in use",
                actual=state.address,
                source=place,
            )
        else:
            counted = in_units(view, state.itemsize)
            missing = 0
            if counted is not None:
                missing = int((~strided(written._painted(), counted)).sum())
            self.verifier.found(
                "uninitialised-read",
                f"{label} reads {missing} of {_size(counted or view)} elements of {state.label()} that nothing has "
                "written",
                limit=0,
                actual=missing,
                source=place,
            )

    def write(self, state: State, view: View, key: Any, indirect: bool, place: SourceLocation | None) -> None:
        """Look at what an instruction writes."""
        if state.shared is not None:
            self._race(state, view, key, indirect, True, place)
        if state.neighbours:
            self._clobber(state, view, indirect, place)
        if indirect:
            state.written.add(((state.elements,), (1,), 0, state.itemsize))
        else:
            state.written.add(view, key)
        if state.written.full:
            state.settle()

    def bank(self, state: State, view: View, place: SourceLocation | None) -> bool:
        """Whether a matmul writes to one bank, as it has to before gen4."""
        if self.verifier.limits.generation >= 4 or state.buffer is not Buffer.psum:
            return True
        shape, strides, offset, itemsize = view
        row = max(state.row_bytes // itemsize, 1)
        first, end = span((shape[1:], strides[1:], offset % row, itemsize))
        if first // PSUM_BANK_BYTES == (end - 1) // PSUM_BANK_BYTES:
            return True
        self.verifier.found(
            "psum-bank",
            f"dst takes bytes {first} to {end} of each partition, which lie in more than one bank",
            limit=PSUM_BANK_BYTES,
            actual=(first, end),
            source=place or source.kernel_line(),
        )
        return False

    def alias(self, by_dma: bool, state: State, dst: View, src: View, place: SourceLocation | None) -> None:
        """A source and the destination are the same view, or apart."""
        if dst == src or not overlap(dst, src):
            return
        self.verifier.found(
            "dma-overlap" if by_dma else "operand-overlap",
            f"dst {dst[0]} from element {dst[2]} overlaps a source {src[0]} from element {src[2]} of {state.label()}",
            limit="the same view, or no common element",
            actual=(dst[2], src[2]),
            source=place or source.kernel_line(),
        )

    def accumulates(self, what: str) -> None:
        """A matmul adds to what is not defined."""
        self.verifier.found(
            "psum-accumulate",
            f"nisa.nc_matmul {what}",
            limit="elements that matmuls have written",
            actual="others",
            source=source.kernel_line(),
        )

    def out_of_order(self, earlier: int, later: int, place: SourceLocation | None) -> None:
        """``depends_on`` names an instruction that was issued after its dependent."""
        self.verifier.found(
            "dependency-order",
            f"Instruction {later} depends on instruction {earlier}, which is issued after it",
            limit=later,
            actual=earlier,
            source=place,
        )

    def _clobber(self, state: State, view: View, indirect: bool, place: SourceLocation | None) -> None:
        assert state.address is not None
        shape, strides, offset, itemsize = view
        row = state.row_bytes // itemsize
        if indirect:
            first_row, rows, low, high = 0, state.partitions, 0, state.row_bytes
        else:
            first_row, rows = offset // row, shape[0]
            low, high = span((shape[1:], strides[1:], offset % row, itemsize))
        partition, byte = state.address[0] + first_row, state.address[1]
        for reference in state.neighbours:
            other = reference()
            if other is None:
                continue
            assert other.address is not None
            other_row = other.row_bytes // other.itemsize
            top = max(partition - other.address[0], 0)
            bottom = min(partition + rows - other.address[0], other.partitions)
            left = max(byte + low - other.address[1], 0) // other.itemsize
            right = min(-(-(byte + high - other.address[1]) // other.itemsize), other_row)
            if (
                top < bottom
                and left < right
                and other.written.remove(slice(top, bottom), slice(left, right), other_row)
            ):
                other.clobbered = place or source.kernel_line()
                other.settle()

    def _race(
        self, state: State, view: View, key: Any, indirect: bool, writes: bool, place: SourceLocation | None
    ) -> None:
        assert state.shared is not None
        if indirect:
            view = key = ((state.elements,), (1,), 0, state.itemsize)
        cores = state.shared.cores
        mine = cores.get(self.index)
        if mine is None or mine.meeting != self.meetings:
            mine = cores[self.index] = _Touched(state)
            mine.meeting = self.meetings
        coverage = mine.writes if writes else mine.reads
        if key in coverage.known:
            return
        place = place or source.kernel_line()
        mine.lines[writes] = place
        coverage.add(view, key)
        for index, other in cores.items():
            if index == self.index or other.meeting != self.meetings:
                continue
            for theirs, coverage in ((True, other.writes), (False, other.reads)):
                if (writes or theirs) and coverage.touches(view):
                    line = other.lines.get(theirs)
                    self.verifier.found(
                        "core-race",
                        f"Core {self.index} {'writes' if writes else 'reads'} {view[0]} of {state.label()} that core "
                        f"{index} {'writes' if theirs else 'reads'} in line {line.line if line else '?'}, with no "
                        "meeting between",
                        limit="a core_barrier between the two",
                        actual=self.meetings,
                        source=place,
                    )
                    return


def _size(view: View) -> int:
    count = 1
    for size in view[0]:
        count *= size
    return count


def begin(launch: "Launch", cores: "list[Core]") -> Verifier | None:
    """Return the verifier of a launch, given to its cores, or None where it is off."""
    findings = sink.get()
    mode = launch.options.verify
    if mode is Verify.off and findings is None:
        return None
    made = Verifier(mode=mode, findings=findings, kernel=launch.kernel, limits=launch.options.limits, lnc=launch.lnc)
    for core in cores:
        core.verifier = made.core(core.index)
    return made
