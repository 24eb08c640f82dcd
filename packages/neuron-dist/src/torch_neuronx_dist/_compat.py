"""Names of torch that are not public. Checked with torch 2.13."""

from collections.abc import Sequence

import torch.distributed as dist

# torch.distributed has both at run time, but does not export the first, and imports the second where it has Gloo.
# Graphs hold groups by their registered names, and only torch's own code looks those up.
from torch._C._distributed_c10d import Backend, ProcessGroup, ProcessGroupGloo, Store, _resolve_process_group
from torch.distributed.distributed_c10d import GroupName

__all__ = ["Backend", "ProcessGroupGloo", "Store", "group_named", "groups_with_ranks"]


def group_named(name: str) -> ProcessGroup:
    """Return the process group that is registered as ``name``; raises ``RuntimeError`` where there is none."""
    return _resolve_process_group(GroupName(name))


def groups_with_ranks(ranks: Sequence[int]) -> list[ProcessGroup]:
    """Return this process's groups of exactly these ranks, the oldest first; torch lists groups nowhere else."""
    known = dist.distributed_c10d._world.pg_group_ranks
    return [group for group, places in known.items() if sorted(places) == sorted(ranks)]
