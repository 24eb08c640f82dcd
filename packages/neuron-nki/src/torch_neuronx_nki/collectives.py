"""``nki.collectives``: communication between the ranks of a process group, on tensors in HBM.

Ranks are those of ``torch.distributed``'s default group; without one there is one rank, 0. Every rank of a group
calls the same collectives in the same order. Data goes through the CPU backend of the group where it has one, else
through tensors of device ``neuron``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from torch_neuronx_nki import ops
from torch_neuronx_nki.checks import HBM, Checker
from torch_neuronx_nki.engines import Engine
from torch_neuronx_nki.issue import OPCODES, Opcode, tell_meeting
from torch_neuronx_nki.machine import Core, current_core, violation
from torch_neuronx_nki.ops import Operator
from torch_neuronx_nki.tensors import NkiTensor
from torch_neuronx_nki.trace import Access

_REDUCTIONS = frozenset({ops.add, ops.maximum, ops.minimum})


@dataclass(frozen=True)
class ReplicaGroup:
    """Groups of ranks that communicate with one another, as lists of ranks."""

    groups: Any

    def members(self, rank: int) -> list[int]:
        """Return the group of ``rank``. Raises :class:`NkiValidationError` if no group, or more than one, has it."""
        groups = [list(group) for group in self.groups]
        ranks = [member for group in groups for member in group]
        if len(set(ranks)) != len(ranks) or rank not in ranks:
            raise violation(
                "replica-group",
                f"The replica groups are {groups}, and rank {rank} communicates",
                limit="each rank once",
                actual=groups,
                advice="List each rank of the process group in one group.",
            )
        return next(group for group in groups if rank in group)


def rank_id() -> int:
    """Return this process's rank."""
    return dist.get_rank() if dist.is_initialized() else 0


def _opcode(name: str, parameters: str) -> Opcode:
    made = Opcode(name, (("src", Access.READ), ("dst", Access.WRITE)), tuple(parameters.split()), _never_prepared, True)
    OPCODES[name] = made
    return made


def _never_prepared(*_: Any) -> Any:
    raise NotImplementedError("Ranks meet in the function of the collective.")


_OPCODES = {
    name: _opcode(name, "group collective_dim op priority")
    for name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "collective_permute")
}


def all_reduce(
    srcs: Sequence[NkiTensor],
    dsts: Sequence[NkiTensor],
    replica_group: ReplicaGroup,
    op: Operator,
    priority: int | None = None,
    name: str | None = None,
) -> Any:
    """``dst`` is the sum, maximum or minimum of ``src`` over the group."""
    call = _Call("all_reduce", srcs, dsts, replica_group, op=op, priority=priority, name=name)
    for src, dst in call.pairs(same_shape=True):
        call.write(dst, _folded(op, call.exchange(src), src))
    return call.done()


def all_gather(
    srcs: Sequence[NkiTensor],
    dsts: Sequence[NkiTensor],
    replica_group: ReplicaGroup,
    collective_dim: int,
    priority: int | None = None,
    name: str | None = None,
) -> Any:
    """``dst`` is every rank's ``src``, side by side along ``collective_dim``."""
    call = _Call("all_gather", srcs, dsts, replica_group, dim=collective_dim, priority=priority, name=name)
    for src, dst in call.pairs(grows=len(call.group)):
        call.write(dst, _joined(call.exchange(src), collective_dim))
    return call.done()


def reduce_scatter(
    srcs: Sequence[NkiTensor],
    dsts: Sequence[NkiTensor],
    replica_group: ReplicaGroup,
    collective_dim: int,
    op: Operator,
    priority: int | None = None,
    name: str | None = None,
) -> Any:
    """``dst`` is this rank's part, along ``collective_dim``, of the reduction of ``src`` over the group."""
    call = _Call("reduce_scatter", srcs, dsts, replica_group, dim=collective_dim, op=op, priority=priority, name=name)
    for src, dst in call.pairs(shrinks=len(call.group)):
        parts = call.exchange(src)
        if parts is None:
            call.write(dst, None)
        else:
            mine = [part.chunk(len(parts), collective_dim)[call.place] for part in parts]
            call.write(dst, _folded(op, mine, src))
    return call.done()


def all_to_all(
    srcs: Sequence[NkiTensor],
    dsts: Sequence[NkiTensor],
    replica_group: ReplicaGroup,
    collective_dim: int,
    priority: int | None = None,
    name: str | None = None,
) -> Any:
    """Part ``j`` of rank ``i``'s ``src`` becomes part ``i`` of rank ``j``'s ``dst``, along ``collective_dim``."""
    call = _Call("all_to_all", srcs, dsts, replica_group, dim=collective_dim, priority=priority, name=name)
    for src, dst in call.pairs(same_shape=True):
        parts = call.exchange(src)
        mine = None if parts is None else [part.chunk(len(parts), collective_dim)[call.place] for part in parts]
        call.write(dst, _joined(mine, collective_dim))
    return call.done()


def collective_permute(
    srcs: Sequence[NkiTensor],
    dsts: Sequence[NkiTensor],
    source_target_pairs: Sequence[Sequence[int]],
    priority: int | None = None,
    name: str | None = None,
) -> Any:
    """Each target's ``dst`` is its source's ``src``; a rank that is no target keeps what it has."""
    everyone = ReplicaGroup([list(range(dist.get_world_size() if dist.is_initialized() else 1))])
    call = _Call("collective_permute", srcs, dsts, everyone, priority=priority, name=name)
    sources = [int(source) for source, target in source_target_pairs if int(target) == call.rank]
    if len(sources) > 1 or any(source not in call.group for source in sources):
        raise violation(
            "replica-group",
            f"Rank {call.rank} is the target of {sources}",
            limit="one source, which is a rank",
            actual=sources,
            advice="Name each target once.",
        )
    for src, dst in call.pairs(same_shape=True):
        parts = call.exchange(src)
        if sources:
            call.write(dst, None if parts is None else parts[sources[0]])
    return call.done()


def collective_permute_implicit(
    srcs_by_channel: Sequence[Sequence[NkiTensor]],
    dsts_by_channel: Sequence[Sequence[NkiTensor]],
    replica_group: ReplicaGroup,
    channel_ids: Sequence[int] = (0,),
    priority: int | None = None,
    name: str | None = None,
) -> Any:
    """Pass tensors on around the ring of the group, for each channel: ``dst`` is the ``src`` of the rank before."""
    made = None
    for srcs, dsts, _ in zip(srcs_by_channel, dsts_by_channel, channel_ids, strict=True):
        call = _Call("collective_permute", srcs, dsts, replica_group, priority=priority, name=name)
        for src, dst in call.pairs(same_shape=True):
            parts = call.exchange(src)
            call.write(dst, None if parts is None else parts[call.place - 1])
        made = call.done()
    return made


def collective_permute_implicit_current_processing_rank_id(
    iteration_id: int, replica_group: ReplicaGroup, channel_id: int = 0
) -> int:
    """Return whose tensors this rank holds after ``iteration_id`` steps around the ring."""
    rank = rank_id()
    group = replica_group.members(rank)
    return group[(group.index(rank) - int(iteration_id)) % len(group)]


class _Call:
    """One collective: its checks, the exchange, and the record."""

    def __init__(
        self,
        opcode: str,
        srcs: Sequence[NkiTensor],
        dsts: Sequence[NkiTensor],
        group: ReplicaGroup,
        *,
        dim: int | None = None,
        op: Operator | None = None,
        priority: int | None = None,
        name: str | None = None,
    ) -> None:
        self.core: Core = current_core()
        self.check = Checker(self.core, opcode)
        self.opcode = _OPCODES[opcode]
        self.srcs, self.dsts = list(srcs), list(dsts)
        self.rank = rank_id()
        self.group = group.members(self.rank)
        self.place = self.group.index(self.rank)
        self.dim, self.op, self.priority, self.name = dim, op, priority, name
        if op is not None:
            self.check.operator("op", op, _REDUCTIONS)
        for name_, tensor in (*(("src", x) for x in self.srcs), *(("dst", x) for x in self.dsts)):
            self.check.buffer(name_, self.check.tensor(name_, tensor), HBM)
        if len(self.srcs) != len(self.dsts):
            self.check.fail(
                "shape-match",
                f"{len(self.srcs)} sources for {len(self.dsts)} destinations",
                limit=len(self.srcs),
                actual=len(self.dsts),
                advice="Give one destination for each source.",
            )

    def pairs(self, *, same_shape: bool = False, grows: int = 1, shrinks: int = 1) -> list[Any]:
        """Return sources and destinations, whose shapes are checked."""
        for src, dst in zip(self.srcs, self.dsts, strict=True):
            self.check.same_dtype(src=src, dst=dst)
            expected = list(src.shape)
            if not same_shape and self.dim is not None:
                if not -len(expected) <= self.dim < len(expected):
                    self.check.option("collective_dim", self.dim, range(len(expected)))
                expected[self.dim] = expected[self.dim] * grows // shrinks
            self.check.shape("dst", dst, tuple(expected))
        return list(zip(self.srcs, self.dsts, strict=True))

    def exchange(self, src: NkiTensor) -> list[torch.Tensor] | None:
        """Return every member's ``src``, in the order of the group; None where only shapes are followed."""
        if not self.core.computes:
            return None
        data = src.data.contiguous()
        if not dist.is_initialized():
            return [data]
        everyone = _everyones(data.view(torch.uint8).reshape(-1) if data.numel() else data)
        return [everyone[member].view(data.dtype).reshape(data.shape) for member in self.group]

    def write(self, dst: NkiTensor, values: torch.Tensor | None) -> None:
        """Write carrier elements, or float32 for a reduction."""
        if values is None:
            return
        if values.dtype is dst.codec.carrier:
            dst.data.copy_(values)
        else:
            dst.codec.save(dst.data, values)

    def done(self) -> Any:
        """Count the instruction and tell observers."""
        made = None
        for src, dst in zip(self.srcs, self.dsts, strict=True):
            parameters = (tuple(self.group), self.dim, self.op, self.priority)
            number = self.core.barriers
            self.core.barriers += 1
            made = tell_meeting(
                self.core, self.opcode, (src, dst), parameters, self.name, Engine.dma, tuple(self.group), number
            )
        return made


def _everyones(data: torch.Tensor) -> list[torch.Tensor]:
    """Return the bytes of every rank of the default group."""
    config = str(dist.get_backend_config())
    results = [torch.empty_like(data) for _ in range(dist.get_world_size())]
    if "cpu:" in config:
        dist.all_gather(results, data)
        return results
    device = torch.device("neuron")
    on_device = [result.to(device) for result in results]
    dist.all_gather(on_device, data.to(device))
    return [result.cpu() for result in on_device]


def _joined(parts: list[torch.Tensor] | None, dim: int) -> torch.Tensor | None:
    return None if parts is None else torch.cat(parts, dim)


def _folded(op: Operator, parts: list[torch.Tensor] | None, src: NkiTensor) -> torch.Tensor | None:
    if parts is None:
        return None
    load = src.codec.load
    result = load(parts[0]).clone()
    for part in parts[1:]:
        result = op.compute(result, load(part))
    return result
