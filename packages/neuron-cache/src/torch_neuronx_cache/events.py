"""What observers receive: one frozen dataclass for every lookup and for everything that goes wrong.

Every :meth:`Cache.get` ends in exactly one ``HIT``, ``MISS`` or ``DISABLED``; every :meth:`Cache.get_or_create` too.
The other outcomes tell what happened on the way.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch_neuronx_cache.why import Explanation


class Outcome(StrEnum):
    """What happened."""

    HIT = "hit"
    MISS = "miss"
    WAITED = "waited"
    """Another process held the key's lock; ``seconds`` is the wait. A HIT or a MISS follows."""
    CORRUPT = "corrupt"
    """An entry failed its checks and was taken out of use."""
    REFUSED = "refused"
    """An entry or a directory was not loaded for whom it belongs to."""
    STORE_ERROR = "store error"
    """A local store could not be read or written."""
    REMOTE_ERROR = "remote error"
    """A remote store could not be read or written."""
    STORED = "stored"
    EVICTED = "evicted"
    DISABLED = "disabled"
    """A lookup while the cache is switched off."""


class Layer(StrEnum):
    """Where a hit came from."""

    MEMORY = "memory"
    STORE = "store"


@dataclass(frozen=True, slots=True)
class CacheEvent:
    """One thing that happened to one key."""

    outcome: Outcome
    kind: str
    key: str
    """Digest; empty where the event is about a whole store."""
    store: str
    """URL; empty while the cache is switched off."""
    layer: Layer | None = None
    seconds: float = 0.0
    """Wall clock that it took."""
    size: int = 0
    """Bytes of content, for hits and stored entries."""
    labels: Mapping[str, str] = field(default_factory=dict)
    detail: str = ""
    """What went wrong, in a sentence."""
    explain: "Callable[[], Explanation | None] | None" = field(default=None, compare=False, repr=False)
    """For a MISS: compares with the nearest entry when called, since that reads the headers of the store."""


Observer = Callable[[CacheEvent], object]
"""Receives every event, in the thread in which it happened. What it returns is ignored."""
