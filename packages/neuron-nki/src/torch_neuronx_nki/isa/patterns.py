"""Instructions that make elements from positions, or move them to other positions."""

from collections.abc import Sequence
from typing import Any

import torch

from torch_neuronx_nki import dtypes, ops
from torch_neuronx_nki.checks import ON_CHIP, SBUF, Checker, free
from torch_neuronx_nki.engines import Engine
from torch_neuronx_nki.issue import Plan, issue, opcode
from torch_neuronx_nki.ops import Operator
from torch_neuronx_nki.simulator import positions
from torch_neuronx_nki.simulator.arithmetic import single
from torch_neuronx_nki.targets import QUADRANT
from torch_neuronx_nki.tensors import NkiTensor


def _pattern(check: Checker, pattern: tuple[tuple[int, int], ...], tile: NkiTensor) -> None:
    count = 1
    for _, size in pattern:
        count *= size
    if not 1 <= len(pattern) <= 4 or count != free(tile):
        check.fail(
            "shape-match",
            f"the pattern {pattern} counts {count} elements in {len(pattern)} dimensions",
            limit=f"1 to 4 dimensions, {free(tile)} elements",
            actual=(len(pattern), count),
            advice="Give [step, count] pairs whose counts multiply to the elements per partition.",
        )


def _pairs(pattern: Sequence[Sequence[int]]) -> tuple[tuple[int, int], ...]:
    return tuple((int(step), int(count)) for step, count in pattern)


@opcode(">dst offset", "pattern channel_multiplier")
def _iota(check: Checker, dst: Any, offset: Any, pattern: Any, channel_multiplier: int) -> Plan:
    check.buffer("dst", check.tensor("dst", dst), SBUF)
    check.not_packed("dst", dst)
    _pattern(check, pattern, dst)
    values = positions.affine(pattern, dst.shape[0], channel_multiplier)
    target, codec = dst.shape, dst.codec

    def run(out: torch.Tensor, start: Any) -> None:
        positions.save_int32(out, (values + int(start)).reshape(target), codec)

    return Plan(run, Engine.gpsimd)


def iota(
    dst: NkiTensor,
    pattern: Sequence[Sequence[int]],
    offset: Any = 0,
    channel_multiplier: int = 0,
    name: str | None = None,
) -> Any:
    """``dst[p, i, ...] = offset + p * channel_multiplier + sum(step * index)`` in int32, then converted.

    Engine: gpsimd.
    """
    return issue(_iota, (dst, offset), (_pairs(pattern), int(channel_multiplier)), name)


@opcode(">dst on_true_tile offset", "pattern channel_multiplier on_false_value cmp_op")
def _affine_select(
    check: Checker,
    dst: Any,
    on_true_tile: Any,
    offset: Any,
    pattern: Any,
    channel_multiplier: int,
    on_false_value: float,
    cmp_op: Any,
) -> Plan:
    for name, operand in (("dst", dst), ("on_true_tile", on_true_tile)):
        check.buffer(name, check.tensor(name, operand), SBUF)
        check.not_packed(name, operand)
    check.same_elements(dst=dst, on_true_tile=on_true_tile)
    compares = (ops.equal, ops.not_equal, ops.less, ops.less_equal, ops.greater, ops.greater_equal)
    check.operator("cmp_op", cmp_op, frozenset(compares))
    _pattern(check, pattern, dst)
    values = positions.affine(pattern, dst.shape[0], channel_multiplier)
    compute, shape, target = cmp_op.into, on_true_tile.shape, dst.shape
    load, save, other = on_true_tile.codec.load, dst.codec.save, single(on_false_value)

    def run(out: torch.Tensor, x: torch.Tensor, start: Any) -> None:
        chosen = compute(values + int(start), 0).reshape(shape)
        save(out, torch.where(chosen, load(x), other).reshape(target))

    return Plan(run, Engine.gpsimd)


def affine_select(
    dst: NkiTensor,
    pattern: Sequence[Sequence[int]],
    channel_multiplier: int,
    on_true_tile: NkiTensor,
    on_false_value: float,
    cmp_op: Operator = ops.equal,
    offset: Any = 0,
    name: str | None = None,
) -> Any:
    """Keep elements for which ``offset + p * channel_multiplier + sum(step * index)`` compares true with 0.

    Elsewhere it writes ``on_false_value``. Engine: gpsimd.
    """
    parameters = (_pairs(pattern), int(channel_multiplier), float(on_false_value), cmp_op)
    return issue(_affine_select, (dst, on_true_tile, offset), parameters, name)


_KEEP = 255


@opcode(">dst src", "shuffle_mask")
def _nc_stream_shuffle(check: Checker, dst: Any, src: Any, shuffle_mask: Any) -> Plan:
    for name, operand in (("dst", dst), ("src", src)):
        check.buffer(name, check.tensor(name, operand), ON_CHIP)
    check.same_dtype(src=src, dst=dst)
    if free(src) != free(dst):
        check.same_elements(dst=dst, src=src)
    if len(shuffle_mask) != QUADRANT or any(not (0 <= at < QUADRANT or at == _KEEP) for at in shuffle_mask):
        check.fail(
            "option",
            f"shuffle_mask is {list(shuffle_mask)}",
            limit=f"{QUADRANT} numbers from 0 to {QUADRANT - 1}, or {_KEEP}",
            actual=tuple(shuffle_mask),
            advice=f"Name the source of each partition of a quadrant; {_KEEP} leaves it alone.",
        )
    pairs = []
    for partition in range(dst.shape[0]):
        at = shuffle_mask[partition % QUADRANT]
        source = partition - partition % QUADRANT + at
        if at != _KEEP and source < src.shape[0]:
            pairs.append((partition, source))
    to = torch.tensor([pair[0] for pair in pairs], dtype=torch.long)
    source_rows = torch.tensor([pair[1] for pair in pairs], dtype=torch.long)
    shape = (len(pairs), *dst.shape[1:])

    def run(out: torch.Tensor, x: torch.Tensor) -> None:
        out[to] = x[source_rows].reshape(shape)

    return Plan(run, Engine.vector, updates=("dst",) if _KEEP in shuffle_mask else ())


def nc_stream_shuffle(dst: NkiTensor, src: NkiTensor, shuffle_mask: Sequence[int], name: str | None = None) -> Any:
    """Move partitions within each group of 32: ``dst[i] = src[shuffle_mask[i]]``; 255 leaves ``dst[i]``. Vector."""
    return issue(_nc_stream_shuffle, (dst, src), (tuple(int(at) for at in shuffle_mask),), name)


@opcode(">dst data indices")
def _nc_n_gather(check: Checker, dst: Any, data: Any, indices: Any) -> Plan:
    for name, operand in (("dst", dst), ("data", data), ("indices", indices)):
        check.buffer(name, check.tensor(name, operand), SBUF)
    check.dtype("indices", indices, (dtypes.uint32,))
    check.same_elements(dst=dst, indices=indices)
    check.same_partitions(dst=dst, data=data)
    check.same_dtype(data=data, dst=dst)
    target, partitions = dst.shape, dst.shape[0]

    def run(out: torch.Tensor, x: torch.Tensor, index: torch.Tensor) -> None:
        flat = x.reshape(partitions, -1)
        where = positions.checked(index.long().reshape(partitions, -1), flat.shape[1], "nc_n_gather")
        out.copy_(torch.gather(flat, 1, where).reshape(target))

    return Plan(run, Engine.gpsimd)


def nc_n_gather(dst: NkiTensor, data: NkiTensor, indices: NkiTensor, name: str | None = None) -> Any:
    """``dst[p, i] = data[p, indices[p, i]]`` over the flattened elements of a partition. Engine: gpsimd."""
    return issue(_nc_n_gather, (dst, data, indices), (), name)


@opcode(">dst src_buffer index", "num_elem_per_idx num_valid_indices")
def _local_gather(
    check: Checker, dst: Any, src_buffer: Any, index: Any, num_elem_per_idx: int, num_valid_indices: Any
) -> Plan:
    for name, operand in (("dst", dst), ("src_buffer", src_buffer), ("index", index)):
        check.buffer(name, check.tensor(name, operand), SBUF)
    check.dtype("index", index, (dtypes.uint16,))
    check.same_dtype(src_buffer=src_buffer, dst=dst)
    check.same_partitions(dst=dst, src_buffer=src_buffer, index=index)
    check.option("num_elem_per_idx", num_elem_per_idx, (1, 2, 4, 8, 16, 32))
    count = free(index) * positions.GROUP
    if count > 4096:
        check.free_limit("index", index, 4096 // positions.GROUP)
    valid = count if num_valid_indices is None else int(num_valid_indices)
    if free(dst) < valid * num_elem_per_idx:
        check.free_limit("dst", dst, free(dst), valid * num_elem_per_idx)
    partitions, target = dst.shape[0], dst.shape

    def run(out: torch.Tensor, x: torch.Tensor, at: torch.Tensor) -> None:
        flat = x.reshape(partitions, -1)
        where = positions.of_groups(at.long().reshape(partitions, -1), valid, num_elem_per_idx)
        positions.checked(where, flat.shape[1], "local_gather")
        result = out.reshape(partitions, -1).clone()
        result[:, : where.shape[1]] = torch.gather(flat, 1, where)
        out.copy_(result.reshape(target))

    return Plan(run, Engine.gpsimd)


def local_gather(
    dst: NkiTensor,
    src_buffer: NkiTensor,
    index: NkiTensor,
    num_elem_per_idx: int = 1,
    num_valid_indices: int | None = None,
    name: str | None = None,
) -> Any:
    """Gather groups of elements: the indices of each 16 partitions, read partition first, hold for all of them.

    Engine: gpsimd.
    """
    return issue(_local_gather, (dst, src_buffer, index), (num_elem_per_idx, num_valid_indices), name)
