"""Instructions that find elements: largest ones, places of values, places that are not 0."""

from typing import Any

import torch

from torch_neuronx_nki import dtypes
from torch_neuronx_nki.checks import ON_CHIP, SBUF, Checker, free
from torch_neuronx_nki.engines import Engine
from torch_neuronx_nki.issue import Plan, issue, opcode
from torch_neuronx_nki.simulator import finding
from torch_neuronx_nki.simulator.arithmetic import single
from torch_neuronx_nki.tensors import NkiTensor

_INDEX = (dtypes.uint16, dtypes.uint32)


@opcode(">dst src")
def _max8(check: Checker, dst: Any, src: Any) -> Plan:
    for name, operand in (("dst", dst), ("src", src)):
        check.buffer(name, check.tensor(name, operand), ON_CHIP)
        check.not_packed(name, operand)
    check.same_partitions(dst=dst, src=src)
    check.free_limit("src", src, check.limits.search_max, check.limits.search_min)
    check.free_limit("dst", dst, 8, 8)
    load, save, target, partitions = src.codec.load, dst.codec.save, dst.shape, src.shape[0]

    def run(out: torch.Tensor, x: torch.Tensor) -> None:
        save(out, load(x).reshape(partitions, -1).topk(8, 1).values.reshape(target))

    return Plan(run, Engine.vector)


def max8(dst: NkiTensor, src: NkiTensor, name: str | None = None) -> Any:
    """Write the 8 largest elements of each partition, the largest first; 8 to 16384 elements. Engine: vector."""
    return issue(_max8, (dst, src), (), name)


@opcode(">dst data vals")
def _nc_find_index8(check: Checker, dst: Any, data: Any, vals: Any) -> Plan:
    for name, operand in (("dst", dst), ("data", data), ("vals", vals)):
        check.buffer(name, check.tensor(name, operand), ON_CHIP)
    check.dtype("dst", dst, _INDEX)
    check.same_partitions(dst=dst, data=data, vals=vals)
    check.free_limit("data", data, check.limits.search_max, check.limits.search_min)
    check.free_limit("dst", dst, 8, 8)
    check.free_limit("vals", vals, 8, 8)
    load, load_vals, target, partitions = data.codec.load, vals.codec.load, dst.shape, dst.shape[0]

    def run(out: torch.Tensor, x: torch.Tensor, values: torch.Tensor) -> None:
        found = finding.places(load(x).reshape(partitions, -1), load_vals(values).reshape(partitions, 8))
        all_ones = 0xFFFF if out.dtype is torch.uint16 else 0xFFFFFFFF
        out.copy_(torch.where(found < 0, all_ones, found).reshape(target))

    return Plan(run, Engine.vector)


def nc_find_index8(dst: NkiTensor, data: NkiTensor, vals: NkiTensor, name: str | None = None) -> Any:
    """Write where each of 8 values first occurs; equal values take later places, and all ones means nowhere.

    Engine: vector.
    """
    return issue(_nc_find_index8, (dst, data, vals), (), name)


@opcode(">dst data vals >dst_idx", "imm")
def _nc_match_replace8(check: Checker, dst: Any, data: Any, vals: Any, dst_idx: Any, imm: float) -> Plan:
    for name, operand in (("dst", dst), ("data", data), ("vals", vals)):
        check.buffer(name, check.tensor(name, operand), ON_CHIP)
        check.not_packed(name, operand)
    check.same_elements(dst=dst, data=data)
    check.same_partitions(dst=dst, vals=vals)
    check.free_limit("data", data, check.limits.search_max, check.limits.search_min)
    check.free_limit("vals", vals, 8, 8)
    if dst_idx is not None:
        check.dtype("dst_idx", check.tensor("dst_idx", dst_idx), _INDEX)
        check.same_partitions(dst=dst, dst_idx=dst_idx)
        check.free_limit("dst_idx", dst_idx, 8, 8)
    load, load_vals, save, target, partitions = (
        data.codec.load,
        vals.codec.load,
        dst.codec.save,
        dst.shape,
        dst.shape[0],
    )

    def run(out: torch.Tensor, x: torch.Tensor, values: torch.Tensor, index: torch.Tensor | None) -> None:
        flat = load(x).reshape(partitions, -1)
        found = finding.places(flat, load_vals(values).reshape(partitions, 8), last_slot_first=True)
        save(out, finding.replaced(flat, found, single(imm)).reshape(target))
        if index is not None:
            all_ones = 0xFFFF if index.dtype is torch.uint16 else 0xFFFFFFFF
            index.copy_(torch.where(found < 0, all_ones, found).reshape(index.shape))

    return Plan(run, Engine.vector)


def nc_match_replace8(
    dst: NkiTensor,
    data: NkiTensor,
    vals: NkiTensor,
    imm: float,
    dst_idx: NkiTensor | None = None,
    name: str | None = None,
) -> Any:
    """Copy ``data`` with the first occurrence of each of 8 values replaced by ``imm``, the last value first.

    ``dst_idx`` receives the places. Engine: vector.
    """
    return issue(_nc_match_replace8, (dst, data, vals, dst_idx), (float(imm),), name)


@opcode(">dst src", "index_offset padding_val")
def _nonzero_with_count(check: Checker, dst: Any, src: Any, index_offset: int, padding_val: int) -> Plan:
    check.generation_from(3, "nonzero_with_count")
    for name, operand in (("dst", dst), ("src", src)):
        check.buffer(name, check.tensor(name, operand), SBUF)
        check.not_packed(name, operand)
    check.dtype("dst", dst, (dtypes.int32,))
    check.same_partitions(dst=dst, src=src)
    count = free(src)
    check.free_limit("dst", dst, count + 1, count + 1)
    load, target, partitions = src.codec.load, dst.shape, src.shape[0]

    def run(out: torch.Tensor, x: torch.Tensor) -> None:
        rows = out.reshape(partitions, -1).clone()
        flat = load(x).reshape(partitions, -1)
        for partition in range(0, partitions, 16):
            where = flat[partition].nonzero().reshape(-1)
            rows[partition] = padding_val
            rows[partition, : where.shape[0]] = (where + index_offset).to(rows.dtype)
            rows[partition, -1] = where.shape[0]
        out.copy_(rows.reshape(target))

    return Plan(run, Engine.gpsimd, updates=("dst",))


def nonzero_with_count(
    dst: NkiTensor, src: NkiTensor, index_offset: int = 0, padding_val: int = -1, name: str | None = None
) -> Any:
    """Write the places of elements that are not 0, padding, and their number at the end.

    Only partitions 0, 16, ..., 112 take part. Engine: gpsimd, from gen3.
    """
    return issue(_nonzero_with_count, (dst, src), (int(index_offset), int(padding_val)), name)


@opcode(">val_dst >idx_dst src", "n")
def _topk(check: Checker, val_dst: Any, idx_dst: Any, src: Any, n: int) -> Plan:
    check.language_from((0, 6), "topk")
    for name, operand in (("val_dst", val_dst), ("idx_dst", idx_dst), ("src", src)):
        check.buffer(name, check.tensor(name, operand), SBUF)
    check.dtype("src", src, (dtypes.bfloat16,))
    check.dtype("val_dst", val_dst, (dtypes.bfloat16,))
    check.dtype("idx_dst", idx_dst, (dtypes.uint32,))
    check.same_partitions(src=src, val_dst=val_dst)
    check.same_elements(val_dst=val_dst, idx_dst=idx_dst)
    partitions, columns, count = src.shape[0], free(src), free(val_dst)
    if partitions % finding.SNAKE:
        check.fail(
            "shape-match",
            f"src has {partitions} partitions",
            limit=f"a multiple of {finding.SNAKE}",
            actual=partitions,
            advice=f"Each {finding.SNAKE} partitions hold one row, one column after the other.",
        )
    most = min(65535, columns * finding.SNAKE)
    if not 8 <= n <= most:
        check.fail(
            "free-limit",
            f"n is {n}, and src holds {columns * finding.SNAKE} elements in {finding.SNAKE} partitions",
            limit=(8, most),
            actual=n,
            advice="Search 8 to 65535 elements, all in src.",
        )
    if count > min(n, 32767):
        check.fail(
            "free-limit",
            f"{count} elements are asked of {n}",
            limit=min(n, 32767),
            actual=count,
            advice="Give val_dst as many elements per partition as there are to find.",
        )
    load = src.codec.load

    def run(out: torch.Tensor, index: torch.Tensor, x: torch.Tensor) -> None:
        rows = finding.unsnaked(x.reshape(partitions, columns))[:, :n]
        order = torch.sort(load(rows), stable=True, descending=True).indices[:, :count].flip(1)
        for to, found in ((out, rows.gather(1, order)), (index, order)):
            to.copy_(finding.snaked(found, to.reshape(partitions, count)).reshape(to.shape))

    return Plan(run, Engine.gpsimd, updates=("val_dst", "idx_dst"))


def topk(val_dst: NkiTensor, idx_dst: NkiTensor, src: NkiTensor, n: int, name: str | None = None) -> Any:
    """Write the largest bfloat16 elements of each row, ascending, and where in the row they were (uint32).

    A row is ``n`` elements in 16 partitions, one column after the other: element ``i`` is in partition ``i % 16`` and
    column ``i // 16``. There are as many results as ``val_dst`` has elements per partition, and they are laid out as a
    row is; what they do not reach stays as it was. Engine: gpsimd, from version 0.6.
    """
    return issue(_topk, (val_dst, idx_dst, src), (int(n),), name)


@opcode(">dst segment_ids")
def _sequence_bounds(check: Checker, dst: Any, segment_ids: Any) -> Plan:
    for name, operand in (("dst", dst), ("segment_ids", segment_ids)):
        check.buffer(name, check.tensor(name, operand), SBUF)
        check.not_packed(name, operand)
    count = free(segment_ids)
    if segment_ids.shape[0] != 1:
        check.shape("segment_ids", segment_ids, (1, count))
    if dst.shape[0] != 1 or free(dst) != 2 * count:
        check.shape("dst", dst, (1, 2, count))
    load, save, target = segment_ids.codec.load, dst.codec.save, dst.shape

    def run(out: torch.Tensor, x: torch.Tensor) -> None:
        save(out, finding.bounds(load(x).reshape(-1)).float().reshape(target))

    return Plan(run, Engine.gpsimd)


def sequence_bounds(dst: NkiTensor, segment_ids: NkiTensor, name: str | None = None) -> Any:
    """Write, for each element, where its segment starts and ends; (n, -1) for padding, which has id 0. Gpsimd."""
    return issue(_sequence_bounds, (dst, segment_ids), (), name)
