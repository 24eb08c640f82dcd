"""Names of torch that are not public. Checked with torch 2.13."""

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

# torch.distributed has them at run time, but does not export them. Graphs hold groups by their registered names, and
# only torch's own code looks those up.
from torch._C._distributed_c10d import Backend, PrefixStore, ProcessGroup, Store, _resolve_process_group
from torch.distributed.distributed_c10d import GroupName

if TYPE_CHECKING:
    from torch._C._distributed_c10d import ProcessGroupGloo  # a torch without Gloo has no such name

__all__ = [
    "Backend",
    "PrefixStore",
    "ProcessGroupGloo",
    "Store",
    "group_named",
    "groups_with_ranks",
    "timeout_of",
    "wrapped_backend",
]


def timeout_of(store: Store) -> timedelta:
    """Return how long a store waits for a key."""
    timeout: timedelta = store.timeout  # type: ignore[attr-defined]  # torch's own description of it is not complete
    return timeout


def group_named(name: str) -> ProcessGroup:
    """Return the process group that is registered as ``name``; raises ``RuntimeError`` where there is none."""
    return _resolve_process_group(GroupName(name))


def wrapped_backend(name: str) -> Backend:
    """Return the backend for device ``neuron`` of the group of that name, which debug mode hides in a wrapper."""
    backend: Backend = group_named(name)._get_backend(torch.device("neuron"))
    return getattr(backend, "wrapped_pg", backend)


def groups_with_ranks(ranks: Sequence[int]) -> list[ProcessGroup]:
    """Return this process's groups of exactly these ranks, the oldest first; torch lists groups nowhere else."""
    known = dist.distributed_c10d._world.pg_group_ranks
    return [group for group, places in known.items() if sorted(places) == sorted(ranks)]
