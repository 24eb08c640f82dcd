"""How an instruction goes from its call to its effect: check once per signature, run, and tell observers.

An :class:`Opcode` is data: the names of the operands and parameters, and a function that checks them and returns a
:class:`Plan`. :func:`issue` is the path that every instruction takes, so it is short.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from torch_neuronx_nki import source
from torch_neuronx_nki.checks import Checker
from torch_neuronx_nki.engines import Buffer, Engine
from torch_neuronx_nki.errors import NkiValidationError
from torch_neuronx_nki.machine import Core, current_core, running, violation
from torch_neuronx_nki.registers import NkiScalar
from torch_neuronx_nki.tensors import ColumnOffsets, NkiTensor, RowOffsets
from torch_neuronx_nki.trace import Access, Dependency, DmaTransfer, Instruction, MatmulShape, Operand

_PSUM, _READ = Buffer.psum, Access.READ  # to ask an enumeration for a member takes as long as a call


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A checked instruction, ready to run on operands of the layouts that were checked."""

    run: Callable[..., Any]
    """Takes the operands: torch tensors over the memory, numbers and None."""
    engine: Engine
    on_views: bool = False
    """``run`` takes the core and the operands as they are instead."""
    defers: Callable[..., bool] | None = None
    """Tried before ``run``, on the operands as they are: whether it did all of it, or noted it for later."""
    matmul: Callable[..., MatmulShape] | None = None
    """Makes the record of a matmul from the operands."""
    dma: Callable[..., DmaTransfer] | None = None
    updates: tuple[str, ...] = ()
    """Operands that are read and written."""
    overwrites: bool = False
    """Whether ``run`` writes every element of the first operand and reads none of them."""


@dataclass(frozen=True, slots=True, eq=False)
class Opcode:
    """One instruction of ``nki.isa``."""

    name: str
    operands: tuple[tuple[str, Access], ...]
    parameters: tuple[str, ...]
    prepare: Callable[..., Plan]
    """``prepare(check, *operands, *parameters)``."""
    by_dma: bool
    """Whether any partition can be addressed."""


OPCODES: dict[str, Opcode] = {}
"""Every instruction by name."""


def opcode(operands: str, parameters: str = "", *, by_dma: bool = False) -> Callable[[Callable[..., Plan]], Opcode]:
    """Make an instruction of a function that checks; its name without a leading underscore is the instruction's.

    ``operands`` names them in order, those that are written with a ``>`` before them.
    """

    def make(prepare: Callable[..., Plan]) -> Opcode:
        made = Opcode(
            name=prepare.__name__.lstrip("_"),
            operands=tuple(
                (word.lstrip(">"), Access.WRITE if word.startswith(">") else Access.READ) for word in operands.split()
            ),
            parameters=tuple(parameters.split()),
            prepare=prepare,
            by_dma=by_dma,
        )
        OPCODES[made.name] = made
        return made

    return make


class NkiInstruction:
    """What an instruction returns: a handle to order others by."""

    __slots__ = ("core", "index")

    def __init__(self, core: Core, index: int) -> None:
        self.core = core
        self.index = index

    def depends_on(self, *producers: "NkiInstruction") -> "NkiInstruction":
        """Say that this one runs after ``producers``. The simulator runs in program order; observers are told."""
        for producer in producers:
            self.core.launch.tell(Dependency(core=self.core.index, earlier=producer.index, later=self.index))
            if producer.index > self.index and self.core.verifier is not None:
                self.core.verifier.out_of_order(producer.index, self.index, source.kernel_line())
        return self


def issue(op: Opcode, operands: tuple[Any, ...], parameters: tuple[Any, ...] = (), name: str | None = None) -> Any:
    """Execute an instruction on the core that runs: operands are tensors, numbers or None; parameters are hashable."""
    core = running.core or current_core()
    key = (op, parameters, *[x.layout if type(x) is NkiTensor else type(x) for x in operands])
    try:
        plan = core.plans.get(key)
    except TypeError:  # a parameter is a list or the like
        plan = _prepare(core, op, operands, parameters)
    if plan is None:
        plan = core.keep(key, _prepare(core, op, operands, parameters))
    if core.verifier is not None:
        core.verifier.step(core.issued, op, plan, operands)
    if core.computes:
        if plan.on_views:
            plan.run(core, *operands)
        elif plan.defers is not None and plan.defers(*operands):
            if operands[0].memory.buffer is _PSUM:
                operands[0].memory.written_otherwise = True
        else:
            first = operands[0]
            memory = first.memory
            data: list[Any] = []
            for x in operands[1:]:
                if type(x) is NkiTensor:
                    values = x.data
                    if (
                        x.memory is memory
                        and (x.offset != first.offset or x.layout is not first.layout)
                        and op.operands[len(data) + 1][1] is _READ
                    ):
                        values = values.clone()  # an input that the result may overlap is read first
                    data.append(values)
                elif type(x) is NkiScalar:
                    data.append(x.value)
                else:
                    data.append(x)
            plan.run(first.target if plan.overwrites else first.data, *data)
            if memory.buffer is _PSUM:
                memory.written_otherwise = True
    index = core.issued
    core.issued = index + 1
    if core.observed:
        _tell(core, index, op, plan, operands, parameters, name)
    return NkiInstruction(core, index)


def _prepare(core: Core, op: Opcode, operands: tuple[Any, ...], parameters: tuple[Any, ...]) -> Plan:
    check = Checker(core, op.name)
    indirect = repeats = False
    for (name, access), operand in zip(op.operands, operands, strict=True):
        if type(operand) is not NkiTensor:
            continue
        indirect |= type(operand.indirection) is ColumnOffsets
        if operand.memory.buffer.on_chip and not op.by_dma:
            check.partition_start(name, operand)
        repeats |= access is not Access.READ and _repeats(operand)
        if type(operand.indirection) is RowOffsets and not op.by_dma:
            check.fail(
                "dma-indirect",
                f"{name} has one index per partition",
                limit="DMA instructions",
                actual=op.name,
                advice="Gather into a tile of SBUF with nisa.dma_copy first.",
            )
    try:
        plan = op.prepare(check, *operands, *parameters)
    except NkiValidationError:
        raise
    except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        names = ", ".join(f"{name}={value!r}" for name, value in zip(op.parameters, parameters, strict=True))
        raise violation(
            "option",
            f"nisa.{op.name} cannot read its parameters {names} ({error})",
            limit="parameters of the types that the instruction documents",
            actual=parameters,
            advice="Compare them with the instruction's signature.",
        ) from error
    if indirect:
        return _indirectly(op, plan)
    return _through_copies(op, plan) if repeats and not plan.on_views else plan


def _repeats(x: NkiTensor) -> bool:
    return any(stride == 0 and size > 1 for stride, size in zip(x.strides, x.shape, strict=True))


def _through_copies(op: Opcode, plan: Plan) -> Plan:
    """Run ``plan`` on copies of results that name an element more than once; the last one written stays.

    Kernels write what they do not need to such views.
    """

    def run(core: Core, *operands: Any) -> None:
        data: list[Any] = []
        back: list[tuple[torch.Tensor, torch.Tensor]] = []
        for (_, access), x in zip(op.operands, operands, strict=True):
            if type(x) is not NkiTensor:
                data.append(x)
            elif access is Access.READ or not _repeats(x):
                data.append(x.data)
            else:
                values = x.data.clone(memory_format=torch.contiguous_format)
                last = tuple(slice(-1, None) if stride == 0 else slice(None) for stride in x.strides)
                back.append((x.data[last], values[last]))
                data.append(values)
        plan.run(*data)
        for place, values in back:
            place.copy_(values)

    return Plan(run, plan.engine, on_views=True, matmul=plan.matmul, dma=plan.dma, updates=plan.updates)


def _indirectly(op: Opcode, plan: Plan) -> Plan:
    """Gather before, and scatter after, what ``plan`` runs on."""

    def run(core: Core, *operands: Any) -> None:
        data: list[Any] = []
        back: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
        for (_, access), x in zip(op.operands, operands, strict=True):
            if type(x) is NkiTensor and type(x.indirection) is ColumnOffsets:
                whole, columns = _columns(x, x.indirection)
                values = torch.gather(whole, 1, columns)
                if access is not Access.READ:
                    back.append((whole, columns, values))
                data.append(values)
            else:
                data.append(x.data if type(x) is NkiTensor else x)
        plan.run(*data)
        for whole, columns, values in back:
            whole.scatter_(1, columns, values)

    return Plan(run, plan.engine, on_views=True, updates=plan.updates)


def _columns(x: NkiTensor, offsets: ColumnOffsets) -> tuple[torch.Tensor, torch.Tensor]:
    memory = x.memory
    assert memory.flat is not None
    if memory.notes is not None:
        memory.settle()
    if memory.unwritten is not None:
        memory.poison()
    whole = torch.as_strided(
        memory.flat_as(x.codec.carrier), (x.shape[0], memory.row), (memory.pitch, 1), x.partition * memory.pitch
    )
    index = offsets.index.data.long().reshape(offsets.index.shape[0], -1)
    rows = []
    for start in range(0, x.shape[0], offsets.group):
        group = index[start : start + offsets.group]
        flat = group.T.reshape(-1)[: x.shape[1]]
        rows.append(flat.expand(min(offsets.group, x.shape[0] - start), -1))
    return whole, torch.cat(rows) + x.offset % memory.row


# Records --------------------------------------------------------------------------------------------------------------


def _tell(
    core: Core,
    index: int,
    op: Opcode,
    plan: Plan,
    operands: tuple[Any, ...],
    parameters: tuple[Any, ...],
    name: str | None,
    cores: tuple[int, ...] = (),
    meeting: int | None = None,
) -> None:
    records: list[Operand] = []
    values: list[tuple[str, Any]] = []
    matmul = plan.matmul(*operands) if plan.matmul is not None else None
    for (label, access), x in zip(op.operands, operands, strict=True):
        if type(x) is NkiTensor:
            if label in plan.updates or (access is Access.WRITE and matmul is not None and matmul.accumulates):
                access = Access.UPDATE
            records.append(operand_record(label, access, x))
            index_tensor = getattr(x.indirection, "index", None)
            if type(index_tensor) is NkiTensor:
                records.append(operand_record(f"{label}.index", Access.READ, index_tensor))
        elif x is not None:
            values.append((label, x.value if type(x) is NkiScalar and core.computes else x))
    asked = False
    for label, value in zip(op.parameters, parameters, strict=True):
        if label == "engine":
            asked = value is not None and value != Engine.unknown
        else:
            values.append((label, value))
    core.launch.tell(
        Instruction(
            index=index,
            core=core.index,
            opcode=op.name,
            engine=plan.engine,
            engine_is_given=asked,
            operands=tuple(records),
            parameters=tuple(values),
            matmul=matmul,
            dma=plan.dma(*operands) if plan.dma is not None else None,
            cores=cores,
            meeting=meeting,
            name=name or "",
            source=source.kernel_line(),
        )
    )
    if name and core.names is not None:
        core.names[name] = index
    if core.chain is not None:
        if core.chain >= 0:
            core.launch.tell(Dependency(core=core.index, earlier=core.chain, later=index))
        core.chain = index


def tell_meeting(
    core: Core,
    op: Opcode,
    operands: tuple[Any, ...],
    parameters: tuple[Any, ...],
    name: str | None,
    engine: Engine,
    cores: tuple[int, ...],
    meeting: int,
    dma: DmaTransfer | None = None,
) -> NkiInstruction:
    """Count, and tell observers of, an instruction in which cores or ranks meet."""
    index = core.issued
    core.issued = index + 1
    if core.observed or core.verifier is not None:
        plan = Plan(_nothing, engine, dma=None if dma is None else lambda *_: dma)
        if core.verifier is not None:
            core.verifier.met(op, operands, plan, index)
    if core.observed:
        _tell(core, index, op, plan, operands, parameters, name, cores, meeting)
    return NkiInstruction(core, index)


def _nothing(*_: Any) -> None:
    """Run nothing: the effect has happened."""


def operand_record(name: str, access: Access, x: NkiTensor) -> Operand:
    """Return the record of a view."""
    memory, size = x.memory, x.dtype.itemsize
    on_chip = memory.buffer.on_chip
    row, _ = memory.in_elements_of(x.codec)
    indirect = x.indirection is not None or x.traced
    dims = list(zip(x.shape, x.strides, strict=True))
    within = dims[1:] if on_chip else dims
    if x.indirection is not None:
        first, end = 0, row if on_chip else row * (memory.shape[0] if memory.shape else 1)
    else:
        low = x.offset % row if on_chip else x.offset
        first = low + sum(stride * (count - 1) for count, stride in within if stride < 0)
        end = low + sum(stride * (count - 1) for count, stride in within if stride > 0) + 1
    run = 1
    for count, stride in reversed(within):
        if count != 1:
            if stride != run:
                break
            run *= count
    return Operand(
        name=name,
        access=access,
        allocation=memory.id,
        buffer=memory.buffer,
        dtype=str(x.dtype),
        itemsize=size,
        shape=x.shape,
        strides=x.strides,
        offset=x.offset,
        partition=x.offset // row if on_chip else 0,
        partitions=x.shape[0] if on_chip else 1,
        first_byte=first * size,
        end_byte=end * size,
        run_bytes=run * size,
        indirect=indirect,
    )
