"""Instructions that move tensors between HBM and SBUF."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_neuronx_nki import dtypes, ops
from torch_neuronx_nki.checks import NOT_PSUM, SBUF, Checker
from torch_neuronx_nki.engines import DgeMode, Engine, OobMode
from torch_neuronx_nki.issue import Plan, issue, opcode, operand_record
from torch_neuronx_nki.machine import Core, current_core
from torch_neuronx_nki.simulator import arithmetic, transfer
from torch_neuronx_nki.tensors import NkiTensor, RowOffsets
from torch_neuronx_nki.trace import Access, DmaTransfer

_QUEUES = (Engine.dma, Engine.sync, Engine.scalar, Engine.gpsimd, Engine.vector, Engine.tensor)


def describe(mode: DgeMode, *, transposes: bool = False, computes: bool = False) -> Callable[..., DmaTransfer]:
    """Return the function that makes the record of a transfer from its operands."""

    def record(dst: NkiTensor, src: NkiTensor, *_: Any) -> DmaTransfer:
        to = operand_record("dst", Access.WRITE, dst)
        source = operand_record("src", Access.READ, src)
        run = min(to.run_bytes * source.itemsize // to.itemsize, source.run_bytes)
        if transposes:
            run = source.itemsize
        nbytes = to.nbytes
        per = max(run * to.itemsize // source.itemsize, 1)
        return DmaTransfer(
            nbytes=nbytes,
            descriptors=-(-nbytes // per),
            descriptor_bytes=per,
            mode=mode,
            indirect=to.indirect or source.indirect,
            transposes=transposes,
            computes=computes,
        )

    return record


def _mode(check: Checker, mode: DgeMode, engine: Engine, *tensors: NkiTensor) -> DgeMode:
    mode = DgeMode(mode)
    by_row = any(isinstance(tensor.indirection, RowOffsets) for tensor in tensors)
    if mode is DgeMode.hwdge:
        check.generation_from(3, "hwdge")
        reasons = []
        if engine not in (Engine.unknown, Engine.scalar, Engine.sync):
            reasons.append(f"engine is {Engine(engine).name}, not scalar or sync")
        if by_row:
            reasons.append("there is one index per partition")
        if len({tensor.dtype for tensor in tensors}) > 1:
            reasons.append("the types differ")
        if reasons:
            check.fail(
                "dma-mode",
                f"hwdge is asked for, but {' and '.join(reasons)}",
                limit="equal types, no vector_offset, engine scalar or sync",
                actual=tuple(reasons),
                advice="Use dge_mode.swdge, or leave dge_mode out.",
            )
    if by_row and mode is DgeMode.unknown:
        return DgeMode.swdge
    return mode


@opcode(">dst src", "priority oob_mode dge_mode engine", by_dma=True)
def _dma_copy(
    check: Checker, dst: Any, src: Any, priority: Any, oob_mode: OobMode, dge_mode: DgeMode, engine: Engine
) -> Plan:
    for name, operand in (("dst", dst), ("src", src)):
        check.buffer(name, check.tensor(name, operand), NOT_PSUM)
    if dst.size != src.size:
        check.fail(
            "element-match",
            f"dst has shape {dst.shape}, src has shape {src.shape}",
            limit=dst.size,
            actual=src.size,
            advice="Slice both to equally many elements.",
        )
    if dst.dtype != src.dtype:
        check.not_packed("dst", dst)
        check.not_packed("src", src)
    check.priority(priority)
    check.engine(engine, _QUEUES)
    mode = _mode(check, dge_mode, engine, dst, src)
    record = describe(mode)
    if not any(isinstance(tensor.indirection, RowOffsets) for tensor in (dst, src)):
        return Plan(arithmetic.copy(dst, src), Engine.dma, dma=record, overwrites=True)
    when = OobMode(oob_mode)

    def run(core: Core, to: NkiTensor, source: NkiTensor) -> None:
        values, inside = transfer.read(source, when, "dma_copy")
        transfer.write(to, transfer.converted(values, source.codec, to.codec), inside, when, "dma_copy")

    return Plan(run, Engine.dma, on_views=True, dma=record)


def dma_copy(
    dst: NkiTensor,
    src: NkiTensor,
    priority: int | None = None,
    oob_mode: OobMode = OobMode.error,
    dge_mode: DgeMode = DgeMode.unknown,
    engine: Engine = Engine.unknown,
    name: str | None = None,
) -> Any:
    """Copy between HBM and SBUF in any direction, converting through float32; not from or to PSUM.

    Views made with ``.ap(vector_offset=...)`` gather and scatter rows. What is outside raises, or is skipped.
    """
    return issue(_dma_copy, (dst, src), (priority, oob_mode, dge_mode, engine), name)


_DEFAULT_AXES = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}


@opcode(">dst src", "axes priority dge_mode oob_mode", by_dma=True)
def _dma_transpose(
    check: Checker, dst: Any, src: Any, axes: Any, priority: Any, dge_mode: DgeMode, oob_mode: OobMode
) -> Plan:
    for name, operand in (("dst", dst), ("src", src)):
        check.buffer(name, check.tensor(name, operand), NOT_PSUM)
        check.not_packed(name, operand)
    check.same_dtype(src=src, dst=dst)
    rank = len(src.shape)
    order = _DEFAULT_AXES.get(rank) if axes is None else tuple(axes)
    if order is None or order != _DEFAULT_AXES.get(rank):
        check.fail(
            "option",
            f"axes is {axes!r} for {rank} dimensions",
            limit=tuple(_DEFAULT_AXES.values()),
            actual=axes,
            advice="Use (1, 0), (2, 1, 0) or (3, 1, 2, 0).",
        )
    if src.dtype.itemsize != 2 and check.core.options.language < (0, 6):
        check.dtype("src", src, (dtype for dtype in dtypes.DTYPES if dtype.itemsize == 2))
    assert order is not None
    expected = tuple(src.shape[axis] for axis in order)
    if check.core.options.language >= (0, 4) or dst.size != src.size:
        check.shape("dst", dst, expected)
    check.priority(priority)
    if DgeMode(dge_mode) is DgeMode.hwdge:
        check.generation_from(3, "hwdge")
        first = src.shape[0]
        fits = first == 16 if rank == 2 else first in (1, 2, 4, 8, 16) and first * src.shape[-2] % 16 == 0
        if not fits:
            check.fail(
                "dma-mode",
                f"hwdge is asked for src of shape {src.shape}",
                limit="16 rows, or 1, 2, 4, 8 or 16 with a multiple of 16 over dimensions 0 and -2",
                actual=src.shape,
                advice="Use dge_mode.swdge, or leave dge_mode out.",
            )
    if isinstance(src.indirection, RowOffsets):
        index = src.indirection.index
        check.buffer("index", index, SBUF)
        if not 16 <= src.shape[0] <= 128 or src.shape[0] % 16:
            check.fail(
                "shape-match",
                f"{src.shape[0]} rows are gathered",
                limit="16 to 128, a multiple of 16",
                actual=src.shape[0],
                advice="Gather rows in multiples of 16.",
            )
    when, target = OobMode(oob_mode), dst.shape

    def run(core: Core, to: NkiTensor, source: NkiTensor) -> None:
        values, inside = transfer.read(source, when, "dma_transpose")
        moved = transfer.transposed(values, order)
        if inside is not None and not bool(inside.all()):
            moved = torch.where(inside, moved, to.data.reshape(moved.shape))  # the gathered dimension is last
        if to.memory is source.memory:
            moved = moved.clone()
        transfer.write(to, moved.reshape(target), None, when, "dma_transpose")

    return Plan(run, Engine.dma, on_views=True, dma=describe(DgeMode(dge_mode), transposes=True))


def dma_transpose(
    dst: NkiTensor,
    src: NkiTensor,
    axes: Sequence[int] | None = None,
    priority: int | None = None,
    dge_mode: DgeMode = DgeMode.unknown,
    oob_mode: OobMode = OobMode.error,
    name: str | None = None,
) -> Any:
    """Exchange the first and the last dimension on the way: axes (1, 0), (2, 1, 0) or (3, 1, 2, 0); 2-byte types."""
    order = None if axes is None else tuple(axes)
    return issue(_dma_transpose, (dst, src), (order, priority, dge_mode, oob_mode), name)


def _dma_compute_opcode(count: int) -> Any:
    names = " ".join(f"src{i}" for i in range(count))

    @opcode(f">dst {names}", "reduce_op scales unique_indices oob_mode", by_dma=True)
    def _dma_compute(check: Checker, dst: Any, *rest: Any) -> Plan:
        sources, (reduce_op, scales, _, oob_mode) = rest[:count], rest[count:]
        for name, operand in (("dst", dst), *((f"src{i}", source) for i, source in enumerate(sources))):
            check.buffer(name, check.tensor(name, operand), NOT_PSUM)
            check.not_packed(name, operand)
            if operand.size != dst.size:
                check.fail(
                    "element-match",
                    f"{name} has shape {operand.shape}, dst has shape {dst.shape}",
                    limit=dst.size,
                    actual=operand.size,
                    advice="Slice all to equally many elements.",
                )
        check.operator("reduce_op", reduce_op, frozenset({ops.add}))
        if scales is not None and any(scale != 1 for scale in scales):
            check.option("scales", scales, ((1.0,) * count,))
        by_row = any(isinstance(tensor.indirection, RowOffsets) for tensor in (dst, *sources))
        if by_row and count != 2:
            check.fail(
                "option",
                f"rows are indexed with {count} sources",
                limit=2,
                actual=count,
                advice="Add to indexed rows with exactly two sources, one of them the destination's rows.",
            )
        when = OobMode(oob_mode)

        def run(core: Core, to: NkiTensor, *inputs: NkiTensor) -> None:
            if isinstance(to.indirection, RowOffsets) and any(x.memory is to.memory for x in inputs):
                _add_rows(to, inputs, when)
                return
            inside = None
            values = []
            for source in inputs:
                read, rows = transfer.read(source, when, "dma_compute")
                inside = rows if rows is not None else inside
                values.append((read, source.codec))
            result = transfer.total(values, to.shape)
            out = torch.empty(to.shape, dtype=to.codec.carrier)
            to.codec.save(out, result)
            transfer.write(to, out, inside, when, "dma_compute")

        return Plan(run, Engine.dma, on_views=True, dma=describe(DgeMode.unknown, computes=True))

    return _dma_compute


def _add_rows(to: NkiTensor, inputs: tuple[NkiTensor, ...], when: OobMode) -> None:
    """Add to the rows that are indexed, one after the other, so that an index that repeats adds up."""
    rows = transfer.Rows(to, when, "dma_compute")
    added = next(x for x in inputs if x.memory is not to.memory)
    values = added.codec.load(transfer.read(added, when, "dma_compute")[0]).reshape(to.shape)
    for position, row in enumerate(rows.index.tolist()):
        if rows.inside[position]:
            place = rows.rows[row]
            to.codec.save(place, to.codec.load(place) + values[position])


_dma_compute_of = {count: _dma_compute_opcode(count) for count in range(16, 0, -1)}


def dma_compute(
    dst: NkiTensor,
    srcs: Sequence[NkiTensor],
    reduce_op: Any,
    scales: Sequence[float] | None = None,
    unique_indices: bool = True,
    oob_mode: OobMode = OobMode.error,
    name: str | None = None,
) -> Any:
    """``dst`` is the float32 sum of up to 16 sources; with indexed rows, of the rows and one source."""
    sources = tuple(srcs)
    kind = _dma_compute_of.get(len(sources))
    if kind is None:
        kind = _dma_compute_of[1]
        Checker(current_core(), kind.name).option("the number of sources", len(sources), range(1, 17))
    parameters = (reduce_op, None if scales is None else tuple(scales), unique_indices, oob_mode)
    return issue(kind, (dst, *sources), parameters, name)
