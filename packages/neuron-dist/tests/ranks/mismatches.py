"""Calls in which two ranks do not agree, each in a group of its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

Call = Callable[[Any, int], object]
"""Makes this rank's call in a group of two; the other rank gives another number."""


def _ones(count: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(count, device="neuron", dtype=dtype)


def _size(rank: int) -> int:
    return 4 + 1000 * rank


def _coalesced(group: Any, rank: int) -> None:
    with dist.distributed_c10d._coalescing_manager(group):
        for _ in range(2):
            dist.all_reduce(_ones(_size(rank)), group=group)


def _parts(rank: int, root: int) -> list[torch.Tensor] | None:
    return [_ones(_size(root)) for _ in range(2)] if rank == root else None


def _uneven(group: Any, rank: int) -> None:
    given, taken = ([1, 2], [1, 1]) if rank == 0 else ([1000, 1], [2, 1])
    dist.all_to_all_single(_ones(sum(taken)), _ones(sum(given)), taken, given, group=group)


def _send(group: Any, rank: int) -> None:
    """The receiver has room for less."""
    if rank == 1:
        dist.send(_ones(1000), group_dst=0, group=group, tag=3)
    else:
        dist.recv(_ones(4), group_src=1, group=group, tag=3)


def _another(group: Any, rank: int) -> None:
    if rank == 0:
        dist.all_reduce(_ones(4), group=group)
    else:
        dist.broadcast(_ones(4), group_src=0, group=group)


SUM, MAX = dist.ReduceOp.SUM, dist.ReduceOp.MAX

CALLS: dict[str, Call] = {
    "all_reduce": lambda group, rank: dist.all_reduce(_ones(_size(rank)), group=group),
    "all_reduce_dtype": lambda group, rank: dist.all_reduce(_ones(4, (torch.float32, torch.int32)[rank]), group=group),
    "all_reduce_coalesced": _coalesced,
    "broadcast": lambda group, rank: dist.broadcast(_ones(_size(rank)), group_src=1, group=group),
    "reduce": lambda group, rank: dist.reduce(_ones(_size(rank)), group_dst=0, group=group),
    "all_gather": lambda group, rank: dist.all_gather(
        [_ones(_size(rank)) for _ in range(2)], _ones(_size(rank)), group=group
    ),
    "all_gather_single": lambda group, rank: dist.all_gather_single(
        _ones(2 * _size(rank)), _ones(_size(rank)), group=group
    ),
    "gather": lambda group, rank: dist.gather(_ones(_size(rank)), _parts(rank, 0), group_dst=0, group=group),
    "scatter": lambda group, rank: dist.scatter(_ones(_size(rank)), _parts(rank, 1), group_src=1, group=group),
    "reduce_scatter": lambda group, rank: dist.reduce_scatter(
        _ones(_size(rank)), [_ones(_size(rank)) for _ in range(2)], group=group
    ),
    "all_to_all_single": lambda group, rank: dist.all_to_all_single(
        _ones(2 * _size(rank)), _ones(2 * _size(rank)), group=group
    ),
    "all_to_all": lambda group, rank: dist.all_to_all(
        [_ones(_size(rank)) for _ in range(2)], [_ones(_size(rank)) for _ in range(2)], group=group
    ),
    "uneven all_to_all_single": _uneven,
    "send": _send,
    "another call": _another,
    "root of broadcast": lambda group, rank: dist.broadcast(_ones(4), group_src=rank, group=group),
    "root of reduce": lambda group, rank: dist.reduce(_ones(4), group_dst=rank, group=group),
    "root of gather": lambda group, rank: dist.gather(_ones(4), [_ones(4), _ones(4)], group_dst=rank, group=group),
    "root of scatter": lambda group, rank: dist.scatter(_ones(4), [_ones(4), _ones(4)], group_src=rank, group=group),
    "operator of all_reduce": lambda group, rank: dist.all_reduce(_ones(4), (SUM, MAX)[rank], group=group),
    "operator of reduce": lambda group, rank: dist.reduce(_ones(4), 0, (SUM, MAX)[rank], group=group),
    "operator of reduce_scatter": lambda group, rank: dist.reduce_scatter_single(
        _ones(4), _ones(8), (SUM, MAX)[rank], group=group
    ),
}


def errors_of(name: str) -> tuple[str | None, str | None]:
    """Make a call on which the ranks do not agree; returns its error and that of the next call, if there are."""
    group = dist.new_group(timeout=timedelta(seconds=60))
    errors: list[str | None] = []
    for call in (CALLS[name], lambda group, rank: dist.all_reduce(_ones(4), group=group)):
        if errors and "were compared" not in str(errors[-1]):
            break  # this rank came first
        try:
            call(group, dist.get_rank())
            errors.append(None)
        except dist.DistBackendError as error:
            errors.append(str(error))
    if errors[0] is None:
        dist.barrier()
    dist.destroy_process_group(group)
    del group  # with the last reference the connections close, and the other's wait ends
    if errors[0] is not None:
        dist.barrier()
    return errors[0], errors[-1] if len(errors) > 1 else None


def operators_that_are_the_same() -> None:
    """A mean is a sum until all ranks' values are there, and of truth values there are two reductions."""
    rank = dist.get_rank()
    values = _ones(4)
    dist.all_reduce(values, (dist.ReduceOp.SUM, dist.ReduceOp.AVG)[rank])
    assert values.tolist() == [(2.0, 1.0)[rank]] * 4
    for operations, expected in (((SUM, MAX), True), ((dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN), False)):
        flags = torch.tensor([rank == 0], device="neuron")
        dist.all_reduce(flags, operations[rank])
        assert flags.tolist() == [expected]


def what_one_rank_gives_itself() -> None:
    """Is compared without the others."""
    rank = dist.get_rank()
    given, taken = [1, 1], [1, 1]
    given[rank] = 2
    with pytest.raises(ValueError, match="gives itself 2 elements and takes 1"):
        dist.all_to_all_single(_ones(2), _ones(3), taken, given)


def memory_of_a_group_that_is_gone(folder: str) -> None:
    """What an earlier job left in the store leads to something else by now, which stays as it is."""
    from torch_neuronx_dist.extension import load

    rank, size = dist.get_rank(), dist.get_world_size()
    store = dist.FileStore(f"{folder}/store", size)
    file = Path(folder, "file")
    host = Path("/proc/sys/kernel/random/boot_id").read_text().strip() + os.readlink("/proc/self/ns/pid")
    place = f"neuron_roll/board/0/{host}"
    if rank == 0:
        file.write_bytes(bytes(32792))  # as much as two ranks share
        store.set(place, f"7 {file}")
        store.add(f"{place}/first", 1)
    dist.barrier()
    options = load().ProcessGroupNeuron.Options()
    group = load().ProcessGroupNeuron(store, rank, size, options)
    tensor = _ones(4)
    group.allreduce([tensor]).wait()
    assert tensor.tolist() == [size] * 4
    assert not any(file.read_bytes())
