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

from torch_neuronx_nki import dtypes, ops, source
from torch_neuronx_nki.checks import HBM, SBUF, Checker
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
        try:
            groups = [[int(member) for member in group] for group in self.groups]
        except (TypeError, ValueError):
            groups = []
        ranks = [member for group in groups for member in group]
        if len(set(ranks)) != len(ranks) or rank not in ranks:
            raise violation(
                "replica-group",
                f"The replica groups are {self.groups}, and rank {rank} communicates",
                limit="each rank once",
                actual=self.groups,
                advice="List each rank of the process group in one group.",
            )
        return next(group for group in groups if rank in group)


def rank_id(name: str | None = None) -> int:
    """Return this process's rank."""
    return dist.get_rank() if dist.is_initialized() else 0


def _opcode(name: str, operands: str) -> Opcode:
    named = tuple(
        (word.lstrip(">"), Access.WRITE if word.startswith(">") else Access.READ) for word in operands.split()
    )
    made = OPCODES[name] = Opcode(name, named, ("group", "collective_dim", "op", "priority"), _never_prepared, True)
    return made


def _never_prepared(*_: Any) -> Any:
    raise NotImplementedError("Ranks meet in the function of the collective.")


_OPCODES = {
    name: _opcode(name, operands)
    for name, operands in (
        ("all_reduce", ">dst src"),
        ("all_gather", ">dst src"),
        ("reduce_scatter", ">dst src"),
        ("all_to_all", ">dst src"),
        ("all_gather_v", ">dst src sends >recv_counts recv_displs"),
        ("all_to_all_v", ">dst src sends >recv_counts recv_displs"),
        ("collective_permute", ">dst src"),
        ("collective_permute_implicit_reduce", ">dst src0 src1"),
    )
}


NAMES = frozenset(_OPCODES)
"""Opcodes of instructions in which ranks meet."""


def all_reduce(
    srcs: Sequence[NkiTensor],
    dsts: Sequence[NkiTensor],
    replica_group: ReplicaGroup,
    op: Operator,
    priority: int | None = None,
    name: str | None = None,
) -> Any:
    """``dst`` is the sum, maximum or minimum of ``src`` over the group. All tensors in HBM, or one pair in SBUF."""
    call = _Call("all_reduce", srcs, dsts, replica_group, op=op, priority=priority, name=name, sbuf=True)
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
    """``dst`` is every rank's ``src``, side by side along ``collective_dim``. All in HBM, or one pair in SBUF."""
    call = _Call("all_gather", srcs, dsts, replica_group, dim=collective_dim, priority=priority, name=name, sbuf=True)
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
    """``dst`` is this rank's part, along ``collective_dim``, of the reduction of ``src`` over the group.

    All tensors in HBM, or one pair in SBUF.
    """
    call = _Call(
        "reduce_scatter",
        srcs,
        dsts,
        replica_group,
        dim=collective_dim,
        op=op,
        priority=priority,
        name=name,
        sbuf=True,
    )
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


def all_gather_v(
    srcs: Sequence[NkiTensor],
    dsts: Sequence[NkiTensor],
    replica_group: ReplicaGroup,
    metadata_tensor: NkiTensor,
    recv_counts_known: bool = False,
    has_rdispls: bool = False,
    priority: int | None = None,
    name: str | None = None,
) -> Any:
    """Every rank's elements, as many as each has, reach ``dst``; counts are known when the kernel runs.

    As :func:`all_to_all_v`, but a rank sends the same elements to all: only the first columns of rows 0 and 1 are read.
    """
    metadata = _Metadata(metadata_tensor, not recv_counts_known, has_rdispls, one_chunk=True)
    return _vary(_Call("all_gather_v", srcs, dsts, replica_group, priority=priority, name=name), metadata)


def all_to_all_v(
    srcs: Sequence[NkiTensor],
    dsts: Sequence[NkiTensor],
    replica_group: ReplicaGroup,
    metadata_tensor: NkiTensor,
    recv_counts_known: bool = False,
    has_rdispls: bool = False,
    priority: int | None = None,
    name: str | None = None,
) -> Any:
    """Each rank sends each other some elements of ``src``, as many as ``metadata_tensor`` says when the kernel runs.

    One tensor each, in HBM, looked at as flat. ``metadata_tensor`` is uint32, (rows, ranks) in HBM or (1, rows, ranks)
    in SBUF, one column for each rank of the group: row 0 is how many elements go there, row 1 where in ``src`` they
    begin, row 2 receives how many have come from there (it stays as it was with ``recv_counts_known``). Those of the
    rank ``r`` in the group begin at ``r`` times ``dst``'s elements by ranks, or where row 3 says with ``has_rdispls``.
    """
    metadata = _Metadata(metadata_tensor, not recv_counts_known, has_rdispls, one_chunk=False)
    return _vary(_Call("all_to_all_v", srcs, dsts, replica_group, priority=priority, name=name), metadata)


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
    try:
        pairs = [(int(source), int(target)) for source, target in source_target_pairs]
    except (TypeError, ValueError):
        pairs = []
    if not pairs:
        raise violation(
            "replica-group",
            f"source_target_pairs is {source_target_pairs!r}",
            limit="pairs of ranks",
            actual=source_target_pairs,
            advice="Give a list of (source, target).",
        )
    sources = [source for source, target in pairs if target == call.rank]
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
    for srcs, dsts in _channels("collective_permute", channel_ids, srcs_by_channel, dsts_by_channel):
        call = _Call("collective_permute", srcs, dsts, replica_group, priority=priority, name=name)
        for src, dst in call.pairs(same_shape=True):
            parts = call.exchange(src)
            call.write(dst, None if parts is None else parts[call.place - 1])
        made = call.done()
    return made


def collective_permute_implicit_reduce(
    srcs0_by_channel: Sequence[Sequence[NkiTensor]],
    srcs1_by_channel: Sequence[Sequence[NkiTensor]],
    dsts_by_channel: Sequence[Sequence[NkiTensor]],
    replica_group: ReplicaGroup,
    op: Operator,
    channel_ids: Sequence[int] = (0,),
    priority: int | None = None,
    name: str | None = None,
) -> Any:
    """Reduce two tensors of this rank and pass the result on around the ring, for each channel.

    ``dst`` is ``src0 op src1`` (sum, maximum or minimum) of the rank before.
    """
    opcode, made = "collective_permute_implicit_reduce", None
    for srcs0, srcs1, dsts in _channels(opcode, channel_ids, srcs0_by_channel, srcs1_by_channel, dsts_by_channel):
        call = _Call(opcode, srcs0, dsts, replica_group, op=op, priority=priority, name=name, others=srcs1)
        for (src, dst), other in zip(call.pairs(same_shape=True), call.others or [], strict=True):
            call.check.same_dtype(src0=src, src1=other)
            call.check.shape("src1", other, src.shape)
            if call.core.computes:
                reduced = torch.empty(dst.shape, dtype=dst.codec.carrier)
                dst.codec.save(reduced, op.compute(src.codec.load(src.data), other.codec.load(other.data)))
                call.write(dst, call.everyones(reduced)[call.place - 1])
        made = call.done()
    return made


def collective_permute_implicit_current_processing_rank_id(
    iteration_id: int, replica_group: ReplicaGroup, channel_id: int = 0, name: str | None = None
) -> int:
    """Return whose tensors this rank holds after ``iteration_id`` steps around the ring."""
    rank = rank_id()
    group = replica_group.members(rank)
    return group[(group.index(rank) - int(iteration_id)) % len(group)]


_CHANNELS = 4


def _channels(opcode: str, channel_ids: Sequence[int], *by_channel: Sequence[Sequence[NkiTensor]]) -> list[Any]:
    """Return what each channel passes on."""
    check = Checker(current_core(), opcode)
    ids = tuple(channel_ids)
    check.option("channel_ids", ids, (tuple(range(count)) for count in range(1, _CHANNELS + 1)))
    for tensors in by_channel:
        if len(tensors) != len(ids):
            check.fail(
                "shape-match",
                f"there are tensors for {len(tensors)} channels",
                limit=len(ids),
                actual=len(tensors),
                advice="Give one list of tensors for each of channel_ids.",
            )
    return list(zip(*by_channel, strict=True))


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
        sbuf: bool = False,
        others: Sequence[NkiTensor] | None = None,
    ) -> None:
        self.core: Core = current_core()
        self.check = Checker(self.core, opcode)
        self.opcode = _OPCODES[opcode]
        self.srcs, self.dsts = list(srcs), list(dsts)
        self.others = None if others is None else list(others)
        """Second sources, for a reduction of two."""
        self.rank = rank_id()
        if not isinstance(group, ReplicaGroup):
            self.check.fail(
                "replica-group",
                f"replica_group is {group!r}",
                limit="a ReplicaGroup",
                actual=type(group).__name__,
                advice="Pass ReplicaGroup([[...]]), with lists of ranks.",
            )
        self.group = group.members(self.rank)
        self.place = self.group.index(self.rank)
        self.dim, self.op, self.priority, self.name = dim, op, priority, name
        if op is not None:
            self.check.operator("op", op, _REDUCTIONS)
        self.check.priority(priority)
        named = [("src", self.srcs), ("dst", self.dsts), ("src1", self.others or [])]
        tensors = [(label, self.check.tensor(label, x)) for label, given in named for x in given]
        for label, tensor in tensors:
            in_sbuf = sbuf and tensors[0][1].buffer in SBUF and len(self.srcs) == 1
            self.check.buffer(label, tensor, SBUF if in_sbuf else HBM)
        for label, given in named if self.others is not None else named[:2]:
            if len(given) != len(self.srcs):
                self.check.fail(
                    "shape-match",
                    f"{len(self.srcs)} sources, and {len(given)} tensors as {label}",
                    limit=len(self.srcs),
                    actual=len(given),
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
                if expected[self.dim] % shrinks:
                    self.check.fail(
                        "shape-match",
                        f"dimension {self.dim} of src has {expected[self.dim]} elements for {shrinks} ranks",
                        limit=f"a multiple of {shrinks}",
                        actual=expected[self.dim],
                        advice="Make it divide by the ranks of the group.",
                    )
                expected[self.dim] = expected[self.dim] * grows // shrinks
            self.check.shape("dst", dst, tuple(expected))
        return list(zip(self.srcs, self.dsts, strict=True))

    def exchange(self, src: NkiTensor) -> list[torch.Tensor] | None:
        """Return every member's ``src``, in the order of the group; None where only shapes are followed."""
        return self.everyones(src.data) if self.core.computes else None

    def everyones(self, data: torch.Tensor) -> list[torch.Tensor]:
        """Return every member's ``data``, in the order of the group. It has as many bytes on each rank."""
        data = data.contiguous()
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

    def done(self, *further: NkiTensor | None) -> Any:
        """Count the instruction and tell observers. ``further`` are operands after the source."""
        made = None
        for position, (src, dst) in enumerate(zip(self.srcs, self.dsts, strict=True)):
            parameters = (tuple(self.group), self.dim, self.op, self.priority)
            number = self.core.barriers
            self.core.barriers += 1
            second = () if self.others is None else (self.others[position],)
            made = tell_meeting(
                self.core,
                self.opcode,
                (dst, src, *second, *further),
                parameters,
                self.name,
                Engine.dma,
                tuple(self.group),
                number,
            )
        return made


@dataclass(frozen=True)
class _Metadata:
    """What says how many elements go where."""

    tensor: NkiTensor
    reports: bool
    """Row 2 receives the counts of what has come."""
    places: bool
    """Row 3 says where it goes."""
    one_chunk: bool
    """A rank sends the same to all: the first column holds for each."""

    def row(self, first: int, count: int = 1) -> NkiTensor:
        """Return rows of the tensor."""
        rows = slice(first, first + count)
        return self.tensor[:, rows, :] if self.tensor.on_chip else self.tensor[rows, :]

    def fits(self, call: _Call) -> None:
        """Raise :class:`NkiValidationError` for a tensor that does not fit the group."""
        check, rows, ranks = call.check, 4 if self.places else 3, len(call.group)
        check.buffer("metadata_tensor", check.tensor("metadata_tensor", self.tensor), HBM | SBUF)
        check.dtype("metadata_tensor", self.tensor, (dtypes.uint32,))
        on_chip = self.tensor.on_chip
        given = self.tensor.shape[1] if on_chip and self.tensor.ndim == 3 else self.tensor.shape[0]
        rows = given if given == 4 else rows  # the fourth row may be there and is not looked at
        check.shape("metadata_tensor", self.tensor, (1, rows, ranks) if on_chip else (rows, ranks))

    def numbers(self, first: int) -> list[int]:
        """Return a row as numbers."""
        values: list[int] = self.row(first).data.reshape(-1).long().tolist()
        return [values[0]] * len(values) if self.one_chunk and first < 2 else values


def _vary(call: _Call, metadata: _Metadata) -> Any:
    """Exchange as many elements as the metadata says."""
    check, ranks = call.check, len(call.group)
    check.language_from((0, 6), "all_gather_v") if metadata.one_chunk else None
    if len(call.srcs) != 1:
        check.fail(
            "shape-match",
            f"{len(call.srcs)} sources are given",
            limit=1,
            actual=len(call.srcs),
            advice="Give one source and one destination.",
        )
    src, dst = call.srcs[0], call.dsts[0]
    check.same_dtype(src=src, dst=dst)
    metadata.fits(call)
    if call.core.computes:
        counts, begins = metadata.numbers(0), metadata.numbers(1)
        for count, begin in zip(counts, begins, strict=True):
            _inside(check, "src", begin, count, src.size)
        slot = dst.size // ranks
        targets = metadata.numbers(3) if metadata.places else [place * slot for place in range(ranks)]
        came = _chunks(call, src.data.reshape(-1), counts, begins)
        result = dst.data.reshape(-1).clone()
        for chunk, target in zip(came, targets, strict=True):
            room = dst.size if metadata.places else target + slot
            _inside(check, "dst", target, chunk.numel(), room)
            result[target : target + chunk.numel()] = chunk
        dst.data.copy_(result.reshape(dst.shape))
        if metadata.reports:
            reported = metadata.row(2).data
            reported.copy_(torch.tensor([chunk.numel() for chunk in came]).reshape(reported.shape))
    return call.done(
        metadata.row(0, 2),
        metadata.row(2) if metadata.reports else None,
        metadata.row(3) if metadata.places else None,
    )


def _inside(check: Checker, name: str, first: int, count: int, room: int) -> None:
    if first + count > room:
        check.fail(
            "index-bounds",
            f"{count} elements from {first} of {name} are more than the {room} that there are",
            limit=room,
            actual=first + count,
            advice="Check what metadata_tensor holds; without has_rdispls each rank has an equal part of dst.",
        )


def _chunks(call: _Call, flat: torch.Tensor, counts: list[int], begins: list[int]) -> list[torch.Tensor]:
    """Return what each member of the group sends to this rank. Ranks of other groups take part with what is theirs."""
    if not dist.is_initialized():
        return [flat[begins[0] : begins[0] + counts[0]].clone()]
    world, ranks, size = dist.get_world_size(), len(call.group), flat.element_size()
    header = torch.zeros(1 + 2 * world, dtype=torch.long)
    header[0] = max(begin + count for begin, count in zip(begins, counts, strict=True)) * size
    header[1 : 1 + ranks], header[1 + world : 1 + world + ranks] = torch.tensor(counts), torch.tensor(begins)
    headers = [theirs.view(torch.long).tolist() for theirs in _everyones(header.view(torch.uint8))]
    data = torch.zeros(max(1, *(theirs[0] for theirs in headers)), dtype=torch.uint8)
    data[: header[0]] = flat.contiguous().view(torch.uint8)[: header[0]]
    everyone = _everyones(data)
    found = []
    for member in call.group:
        count, begin = headers[member][1 + call.place], headers[member][1 + world + call.place]
        found.append(everyone[member][begin * size : (begin + count) * size].clone().view(flat.dtype))
    return found


@source.calls_back
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
