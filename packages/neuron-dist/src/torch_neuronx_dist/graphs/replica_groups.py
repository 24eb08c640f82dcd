"""Process groups as StableHLO names them: the ranks of all groups of a partition of the world.

A program that names only this rank's group would be another program on every group of a mesh dimension, each with a
NEFF of its own, and a compiler that lays out communication needs to see every rank in it.
"""

from collections.abc import Sequence

import torch.distributed as dist

from torch_neuronx_dist._compat import group_named, groups_with_ranks

NAME = "neuron"

Groups = tuple[tuple[int, ...], ...]


def partition(ranks: Sequence[int], world_size: int) -> Groups | None:
    """Return groups of one size that cover the world, ``ranks`` among them; ``None`` where there are none.

    First choice: copies of the group, shifted, that tile the world. These are the groups of a mesh dimension, or of
    several, wherever ranks lie in the mesh row by row, and every member of every group finds the same ones. Otherwise
    the other ranks, in order, make up groups of the same size.
    """
    mine = tuple(ranks)
    tiles = _tiles(sorted(mine), world_size)
    if tiles is not None:
        places = [sorted(mine).index(rank) for rank in mine]
        groups = tuple(tuple(tile[place] for place in places) for tile in tiles)
        if mine in groups:
            return groups
    rest = [rank for rank in range(world_size) if rank not in set(mine)]
    if len(rest) % len(mine) != 0:
        return None
    others = [tuple(rest[start : start + len(mine)]) for start in range(0, len(rest), len(mine))]
    return tuple(sorted([mine, *others], key=min))


def _tiles(ranks: list[int], world_size: int) -> list[list[int]] | None:
    """Tile the world with shifted copies of ``ranks``; there is at most one way, as the lowest gap decides."""
    free = set(range(world_size))
    tiles = []
    while free:
        tile = [min(free) + rank - ranks[0] for rank in ranks]
        if not free.issuperset(tile):
            return None
        free.difference_update(tile)
        tiles.append(tile)
    return tiles


def replica_groups(group_name: str) -> Groups:
    """Return the partition for the process group of that name.

    Raises ``NotImplementedError`` where the world cannot be divided into groups of its size.
    """
    ranks = dist.get_process_group_ranks(group_named(group_name))
    groups = partition(ranks, dist.get_world_size())
    if groups is None:
        raise NotImplementedError(
            f"its group has the ranks {ranks}, and the other ranks of {dist.get_world_size()} cannot be divided into "
            "groups of that size, which one program for all ranks needs"
        )
    return groups


def encode(groups: Sequence[Sequence[int]]) -> str:
    """Write groups as text: ``0,1;2,3``."""
    return ";".join(",".join(map(str, group)) for group in groups)


def find_group(groups: Sequence[Sequence[int]]) -> str:
    """Return the name of the process group that carries this rank's part of a collective over ``groups``.

    Of several groups with the same ranks the oldest is taken, on every rank the same one. Where there is none, it is
    made: all of its ranks come here, because they run the same program. Raises ``RuntimeError`` where this process
    has no process group, or is in none of ``groups``.
    """
    if not dist.is_initialized():
        raise RuntimeError(
            "The program exchanges data with other ranks, and this process is in no process group. Call "
            "torch.distributed.init_process_group('neuron') first."
        )
    rank = dist.get_rank()
    mine = next((sorted(group) for group in groups if rank in group), None)
    if mine is None:
        raise RuntimeError(
            f"The program was compiled for the replica groups {encode(groups)}, and this process has the rank {rank} "
            f"of {dist.get_world_size()}. Compile it again for this world."
        )
    for group in groups_with_ranks(mine):
        if NAME in str(dist.get_backend_config(group)):
            return str(group.group_name)
    made = dist.new_group(mine, backend=NAME, use_local_synchronization=True)
    return str(made.group_name)
