"""Ranks of one job run the same versions: they tell each other theirs when the first group is made."""

from __future__ import annotations

import json
import platform
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from torch_neuronx import installed
from torch_neuronx_dist.errors import VersionMismatchError

if TYPE_CHECKING:
    from torch_neuronx_dist._compat import Store

DISTRIBUTIONS = (
    "torch",
    "torch-neuronx",
    "torch-neuronx-compile",
    "torch-neuronx-dist",
    "torch-neuronx-nki",
    "torch-neuronx-cache",
)


@dataclass(frozen=True, slots=True)
class Installation:
    """What one rank runs, and where."""

    host: str
    versions: Mapping[str, str]
    """By distribution; one that is not installed has no entry."""


def this_installation() -> Installation:
    """Describe this process."""
    found = {name: installed.version(name) for name in DISTRIBUTIONS}
    return Installation(
        host=socket.gethostname(),
        versions={"python": platform.python_version()} | {name: version for name, version in found.items() if version},
    )


def check_same_versions(store: Store, rank: int, size: int) -> None:
    """Tell the other ranks what this one runs, and raise VersionMismatchError on every rank if one differs.

    Waits for all ranks, as the group itself does, for as long as the store's timeout.
    """
    keys = [f"neuron_versions/{number}" for number in range(size)]
    store.set(keys[rank], json.dumps(asdict(this_installation())))
    store.wait(keys)
    found = [Installation(**json.loads(text)) for text in store.multi_get(keys)]
    difference = describe_difference(found)
    if difference is not None:
        raise VersionMismatchError(difference)


def describe_difference(ranks: Sequence[Installation]) -> str | None:
    """Say which rank runs other versions than most do, and which versions; ``None`` where all are the same."""

    def key(rank: Installation) -> tuple[tuple[str, str], ...]:
        return tuple(sorted(rank.versions.items()))

    common_key, _ = Counter(map(key, ranks)).most_common(1)[0]  # of equally many, the first rank's
    common = dict(common_key)
    odd = [(number, rank) for number, rank in enumerate(ranks) if key(rank) != common_key]
    if not odd:
        return None
    number, rank = odd[0]
    parts = [
        f"{name} {rank.versions.get(name, '(not installed)')} instead of {common.get(name, '(not installed)')}"
        for name in sorted(common.keys() | rank.versions.keys())
        if rank.versions.get(name) != common.get(name)
    ]
    others = f" So do ranks {', '.join(str(n) for n, _ in odd[1:])} differ." if len(odd) > 1 else ""
    return (
        f"Rank {number} on host {rank.host} runs {', '.join(parts)}.{others} Install the same versions for every rank."
    )
