"""Why a lookup missed: the entry that is nearest to a key, and the parts in which it differs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from torch_neuronx_cache.entries import Header
from torch_neuronx_cache.keys import CacheKey, PartDifference, diff


@dataclass(frozen=True, slots=True)
class Explanation:
    """The result of a comparison of one key with the entries of a store."""

    key: CacheKey
    present: bool
    """The key itself is stored: the lookup would hit."""
    nearest: Header | None
    """None when the store holds nothing to compare with."""
    differences: tuple[PartDifference, ...]
    compared: int
    """Entries looked at."""
    labels: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        if self.nearest is None:
            return f"{self.key.digest[:12]}: the store holds no {self.key.kind} entry to compare with."
        name = self.nearest.labels.get("graph")
        nearest = f"{self.nearest.key.digest[:12]}" + (f" ({name})" if name else "")
        lines = [f"{self.key.digest[:12]} differs from the nearest of {self.compared} entries, {nearest}, in:"]
        return "\n".join(lines + [f"  {difference.describe()}" for difference in self.differences])


def explain(
    key: CacheKey, headers: Iterable[Header], labels: Mapping[str, str] | None = None, *, present: bool = False
) -> Explanation:
    """Compare ``key`` with every header but its own.

    Nearest is the entry with the fewest differing parts; among equals one of the same graph, then the latest.
    """
    labels = labels or {}
    graph = labels.get("graph")
    best: tuple[tuple[int, bool, float], Header, tuple[PartDifference, ...]] | None = None
    compared = 0
    for header in headers:
        if header.key.digest == key.digest or header.key.kind != key.kind:
            continue
        compared += 1
        differences = diff(header.key, key)
        rank = (len(differences), graph is None or header.labels.get("graph") != graph, -header.made.time)
        if best is None or rank < best[0]:
            best = (rank, header, differences)
    if best is None:
        return Explanation(key, present, None, (), compared, labels)
    return Explanation(key, present, best[1], best[2], compared, labels)
