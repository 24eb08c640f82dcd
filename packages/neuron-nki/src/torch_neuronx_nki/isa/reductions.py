"""Instructions that make fewer elements of many."""

from typing import Any

import torch

from torch_neuronx_nki import ops
from torch_neuronx_nki.checks import ON_CHIP, SBUF, Checker, free
from torch_neuronx_nki.engines import Engine
from torch_neuronx_nki.issue import Plan, issue, opcode
from torch_neuronx_nki.ops import BINARY, BITWISE, REDUCTIONS, Operator
from torch_neuronx_nki.simulator import arithmetic, statistics
from torch_neuronx_nki.tensors import NkiTensor


def reduced_dims(check: Checker, data: NkiTensor, axis: Any) -> tuple[int, ...]:
    """Return the dimensions that ``axis`` names, which are the last ones."""
    rank = len(data.shape)
    dims = sorted(dim + rank if dim < 0 else dim for dim in ((axis,) if isinstance(axis, int) else axis))
    if not dims or dims[0] < 1 or dims != list(range(rank - len(dims), rank)):
        check.fail(
            "axis",
            f"axis is {axis!r} of shape {data.shape}",
            limit=f"the last dimensions of 1 to {rank - 1}",
            actual=axis,
            advice="Permute the view so that what is reduced comes last; use tensor_partition_reduce for dimension 0.",
        )
    return tuple(dims)


@opcode(">dst data", "op axis negate keepdims")
def _tensor_reduce(check: Checker, dst: Any, data: Any, op: Any, axis: Any, negate: bool, keepdims: bool) -> Plan:
    for name, operand in (("dst", dst), ("data", data)):
        check.buffer(name, check.tensor(name, operand), ON_CHIP)
        check.not_packed(name, operand)
    check.operator("op", op, REDUCTIONS)
    check.bit_operands(op, dst=dst, data=data)
    dims = reduced_dims(check, data, axis)
    check.same_partitions(dst=dst, data=data)
    kept = 1
    for size in data.shape[1 : dims[0]]:
        kept *= size
    if free(dst) != kept:
        check.fail(
            "element-match",
            f"dst has {free(dst)} elements per partition, the reduction of {data.shape} over {axis} leaves {kept}",
            limit=kept,
            actual=free(dst),
            advice=f"Give dst {kept} elements per partition.",
        )
    if negate and op in BITWISE:
        check.fail(
            "option",
            "negate is given with a bit operation",
            limit="arithmetic operators",
            actual=op.name,
            advice="Leave negate out.",
        )
    return Plan(arithmetic.reduction(op, dst, data, dims, negate), Engine.vector, overwrites=True)


def tensor_reduce(
    dst: NkiTensor,
    op: Operator,
    data: NkiTensor,
    axis: Any,
    negate: bool = False,
    keepdims: bool = False,
    name: str | None = None,
) -> Any:
    """Reduce ``data`` over its last dimensions ``axis``, never over the partition. Engine: vector."""
    axis = axis if isinstance(axis, int) else tuple(axis)
    return issue(_tensor_reduce, (dst, data), (op, axis, negate, keepdims), name)


@opcode(">dst data", "op")
def _tensor_partition_reduce(check: Checker, dst: Any, data: Any, op: Any) -> Plan:
    for name, operand in (("dst", dst), ("data", data)):
        check.buffer(name, check.tensor(name, operand), SBUF)
        check.not_packed(name, operand)
    check.operator("op", op, frozenset({ops.add, ops.average, ops.maximum, ops.bitwise_or, ops.bitwise_and}))
    check.bit_operands(op, dst=dst, data=data)
    if dst.shape[0] != 1 or free(dst) != free(data):
        check.fail(
            "shape-match",
            f"dst has shape {dst.shape}",
            limit=(1, free(data)),
            actual=dst.shape,
            advice="The result is one partition.",
        )
    return Plan(arithmetic.reduction(op, dst, data, (0,), False), Engine.gpsimd, overwrites=True)


def tensor_partition_reduce(dst: NkiTensor, op: Operator, data: NkiTensor, name: str | None = None) -> Any:
    """Reduce over partitions into one: add, average, maximum, or bits. Engine: gpsimd."""
    return issue(_tensor_partition_reduce, (dst, data), (op,), name)


@opcode(">dst data")
def _bn_stats(check: Checker, dst: Any, data: Any) -> Plan:
    for name, operand in (("dst", dst), ("data", data)):
        check.buffer(name, check.tensor(name, operand), ON_CHIP)
        check.not_packed(name, operand)
    check.free_limit("data", data, check.limits.bn_stats_fmax)
    check.same_partitions(dst=dst, data=data)
    check.free_limit("dst", dst, 6, 6)
    load, save, target, partitions = data.codec.load, dst.codec.save, dst.shape, data.shape[0]

    def run(out: torch.Tensor, x: torch.Tensor) -> None:
        save(out, statistics.of_halves(load(x).reshape(partitions, -1)).reshape(target))

    return Plan(run, Engine.vector)


def bn_stats(dst: NkiTensor, data: NkiTensor, name: str | None = None) -> Any:
    """Write count, mean and count times variance of the even, then of the odd elements of each partition.

    At most 512 elements. Engine: vector.
    """
    return issue(_bn_stats, (dst, data), (), name)


@opcode(">dst data")
def _bn_aggr(check: Checker, dst: Any, data: Any) -> Plan:
    for name, operand in (("dst", dst), ("data", data)):
        check.buffer(name, check.tensor(name, operand), ON_CHIP)
        check.not_packed(name, operand)
    check.same_partitions(dst=dst, data=data)
    check.free_limit("dst", dst, 2, 2)
    if free(data) % 3:
        check.fail(
            "shape-match",
            f"data has {free(data)} elements per partition",
            limit="a multiple of 3",
            actual=free(data),
            advice="Pass groups of count, mean and count times variance, as bn_stats writes them.",
        )
    load, save, target, partitions = data.codec.load, dst.codec.save, dst.shape, data.shape[0]

    def run(out: torch.Tensor, x: torch.Tensor) -> None:
        save(out, statistics.of_groups(load(x).reshape(partitions, -1, 3)).reshape(target))

    return Plan(run, Engine.vector)


def bn_aggr(dst: NkiTensor, data: NkiTensor, name: str | None = None) -> Any:
    """Combine groups of count, mean and count times variance into mean and variance. Engine: vector."""
    return issue(_bn_aggr, (dst, data), (), name)


@opcode(">dst data0 data1 initial", "op0 op1 reverse0 reverse1")
def _tensor_tensor_scan(
    check: Checker, dst: Any, data0: Any, data1: Any, initial: Any, op0: Any, op1: Any, reverse0: bool, reverse1: bool
) -> Plan:
    for name, operand in (("dst", dst), ("data0", data0), ("data1", data1)):
        check.buffer(name, check.tensor(name, operand), ON_CHIP)
        check.not_packed(name, operand)
    check.same_elements(dst=dst, data0=data0, data1=data1)
    check.not_both_psum(data0, data1)
    check.operator("op0", op0, BINARY)
    check.operator("op1", op1, BINARY)
    check.per_partition("initial", initial, data0)
    first, second = arithmetic.ordered(op0, reverse0), arithmetic.ordered(op1, reverse1)
    load0, load1, save, target, partitions = data0.codec.load, data1.codec.load, dst.codec.save, dst.shape, dst.shape[0]

    def run(out: torch.Tensor, a: torch.Tensor, b: torch.Tensor, start: Any) -> None:
        left, right = load0(a).reshape(partitions, -1), load1(b).reshape(partitions, -1)
        result = arithmetic.as_operand(start, 2).expand(partitions, 1)
        columns = []
        for i in range(left.shape[1]):
            result = second(first(left[:, i : i + 1], result), right[:, i : i + 1])
            columns.append(result)
        save(out, torch.cat(columns, 1).reshape(target))

    return Plan(run, Engine.vector)


def tensor_tensor_scan(
    dst: NkiTensor,
    data0: NkiTensor,
    data1: NkiTensor,
    initial: Any,
    op0: Operator,
    op1: Operator,
    reverse0: bool = False,
    reverse1: bool = False,
    name: str | None = None,
) -> Any:
    """``dst[i] = (data0[i] op0 dst[i - 1]) op1 data1[i]`` along each partition, from ``initial``. Engine: vector."""
    return issue(_tensor_tensor_scan, (dst, data0, data1, initial), (op0, op1, reverse0, reverse1), name)
