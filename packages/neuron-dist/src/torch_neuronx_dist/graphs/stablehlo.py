"""StableHLO for functional collectives. Runs in the compile worker, which has no torch.

``group_name`` holds the replica groups as text, one group after the other: ``0,1;2,3``. Ranks are the partitions of
the program: every operation has a channel, and where StableHLO asks for it, global device ids.
"""

from collections.abc import Callable
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

_DEVICE_TO_DEVICE = 1
_REDUCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": stablehlo.add,
    "avg": stablehlo.add,
    "product": stablehlo.multiply,
    "min": stablehlo.minimum,
    "max": stablehlo.maximum,
    "band": stablehlo.and_,
    "bor": stablehlo.or_,
    "bxor": stablehlo.xor,
}


def all_reduce(call: Any, reduce_op: str, group_name: str) -> Any:
    """Build ``all_reduce``; a mean is a sum and a division."""
    (operand,) = call.operands
    operation = stablehlo.AllReduceOp(
        [operand.type],
        [operand],
        _replica_groups(group_name),
        channel_handle=_channel(),
        use_global_device_ids=True,
    )
    _reduce(operation.computation, operand.type.element_type, reduce_op)
    return _averaged(operation.results[0], reduce_op, group_name)


def reduce_scatter_tensor(call: Any, reduce_op: str, group_size: int, group_name: str) -> Any:
    """Build ``reduce_scatter`` along the first dimension."""
    (operand,) = call.operands
    operation = stablehlo.ReduceScatterOp(
        call.results[0].type,
        operand,
        0,
        _replica_groups(group_name),
        channel_handle=_channel(),
        use_global_device_ids=True,
    )
    _reduce(operation.computation, operand.type.element_type, reduce_op)
    return _averaged(operation.results[0], reduce_op, group_name)


def all_gather_into_tensor(call: Any, group_size: int, group_name: str) -> Any:
    """Build ``all_gather`` along the first dimension; a scalar counts as one row."""
    (operand,) = call.operands
    if not operand.type.shape:
        operand = stablehlo.reshape(ir.RankedTensorType.get([1], operand.type.element_type), operand)
    operation = stablehlo.AllGatherOp(
        [call.results[0].type],
        [operand],
        0,
        _replica_groups(group_name),
        channel_handle=_channel(),
        use_global_device_ids=True,
    )
    return operation.results[0]


def all_to_all_single(call: Any, output_split_sizes: list[int], input_split_sizes: list[int], group_name: str) -> Any:
    """Build ``all_to_all`` of equal parts of the first dimension."""
    return _all_to_all(call, 0, 0, group_name)


def shard_dim_alltoall(call: Any, gather_dim: int, shard_dim: int, group_name: str) -> Any:
    """Build the ``all_to_all`` that shards another dimension of a tensor."""
    rank = len(call.operands[0].type.shape)
    return _all_to_all(call, shard_dim % rank, gather_dim % rank, group_name)


def broadcast(call: Any, src: int, group_name: str) -> Any:
    """Build ``collective_broadcast``, whose source is the first rank of each group."""
    (operand,) = call.operands
    groups = [[group[src], *group[:src], *group[src + 1 :]] for group in _decode(group_name)]
    operation = stablehlo.CollectiveBroadcastOp(operand, _matrix(groups), channel_handle=_channel())
    return operation.results[0]


def same(call: Any) -> Any:
    """Build nothing: a value of a program is there when it is used."""
    return call.operands[0]


def _all_to_all(call: Any, split: int, concatenated: int, group_name: str) -> Any:
    count = len(_decode(group_name)[0])
    operation = stablehlo.AllToAllOp(
        list(call.operands), split, concatenated, count, _replica_groups(group_name), channel_handle=_channel()
    )
    return operation.results[0]


def _reduce(region: Any, element: Any, reduce_op: str) -> None:
    scalar = ir.RankedTensorType.get([], element)
    combine = _REDUCTIONS.get(reduce_op)
    if combine is None:
        raise NotImplementedError(f"there is no reduction {reduce_op!r} in StableHLO")
    if isinstance(element, ir.IntegerType) and element.width == 1:
        if reduce_op == "avg":
            raise NotImplementedError("truth values have no mean")
        combine = {"sum": stablehlo.or_, "product": stablehlo.and_}.get(reduce_op, combine)
    elif isinstance(element, ir.FloatType) and reduce_op in ("band", "bor", "bxor"):
        raise NotImplementedError("bits of floating point numbers are not combined")
    block = region.blocks.append(scalar, scalar)
    with ir.InsertionPoint(block):
        stablehlo.return_([combine(*block.arguments)])


def _averaged(value: Any, reduce_op: str, group_name: str) -> Any:
    if reduce_op != "avg":
        return value
    count, element = len(_decode(group_name)[0]), value.type.element_type
    kind = ir.FloatAttr if isinstance(element, ir.FloatType) else ir.IntegerAttr
    number = kind.get(element, count)
    return stablehlo.divide(value, stablehlo.constant(ir.DenseElementsAttr.get_splat(value.type, number)))


def _replica_groups(text: str) -> ir.Attribute:
    return _matrix(_decode(text))


def _matrix(groups: list[list[int]]) -> ir.Attribute:
    i64 = ir.IntegerType.get_signless(64)
    numbers = [ir.IntegerAttr.get(i64, rank) for group in groups for rank in group]
    return ir.DenseElementsAttr.get(numbers, ir.RankedTensorType.get([len(groups), len(groups[0])], i64))


def _decode(text: str) -> list[list[int]]:
    return [[int(rank) for rank in group.split(",")] for group in text.split(";")]


def _channel() -> Any:
    return stablehlo.ChannelHandle.get(1, _DEVICE_TO_DEVICE)  # the compiler numbers them
