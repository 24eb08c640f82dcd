"""What observers receive: one frozen dataclass per thing that happens.

Times are seconds of wall clock. ``graph`` is the name under which a graph's artifacts are written; ``key`` is the
content key under which its NEFF is cached.
"""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events."""


@dataclass(frozen=True, slots=True)
class CompileStarted(Event):
    """A compiler begins to turn a graph into a NEFF; a cache hit does not send this."""

    graph: str
    key: str
    compiler: str
    target: str


@dataclass(frozen=True, slots=True)
class CompileFinished(Event):
    """The compiler returned or failed; one for each :class:`CompileStarted`."""

    graph: str
    key: str
    compiler: str
    target: str
    seconds: float
    neff_bytes: int | None
    """Size of the NEFF; ``None`` after a failure."""
    error: str | None = None
    """What the compiler said; ``None`` after a success."""


class CacheLayer(StrEnum):
    """Where a compiled graph was looked up."""

    MEMORY = "memory"
    PERSISTENT = "persistent"
    LOWERED = "lowered"
    """The store of lowered programs, by graph: a hit saves the lowering."""
    TRACED = "traced"
    """PyTorch's cache of traced functions, whose entries bring the NEFFs along: only hits are told."""


@dataclass(frozen=True, slots=True)
class CacheLookedUp(Event):
    """One layer of the compilation cache was asked for a key."""

    key: str
    layer: CacheLayer
    hit: bool
    seconds: float


class CacheTrouble(StrEnum):
    """Why a look-up in the persistent cache was no plain hit or miss."""

    WAITED = "waited"
    """Another process held the key's lock; a hit or a miss follows."""
    CORRUPT = "corrupt"
    """The entry was damaged and taken out of use."""
    REFUSED = "refused"
    """The entry, or its directory, belongs to somebody who is not trusted."""
    STORE_ERROR = "store error"
    REMOTE_ERROR = "remote error"


@dataclass(frozen=True, slots=True)
class CacheTroubled(Event):
    """A look-up in the persistent cache met an obstacle, and the work went on."""

    key: str
    trouble: CacheTrouble
    detail: str = ""


@dataclass(frozen=True, slots=True)
class GraphExecuted(Event):
    """A compiled graph was handed to the runtime; device work may still be queued."""

    graph: str
    device: int
    seconds: float


@dataclass(frozen=True, slots=True)
class KernelExecuted(Event):
    """A kernel ran, by itself or inside of a compiled graph."""

    kernel: str
    simulated: bool
    """False where an equivalent function of torch ran in its place."""
    seconds: float


@dataclass(frozen=True, slots=True)
class OpFellBack(Event):
    """An operator ran on the CPU instead of the device."""

    op: str
    """Qualified name, ``aten::complex``."""
    reason: str
    calls: int = 1
    """How many calls this event stands for."""


@dataclass(frozen=True, slots=True)
class GraphBroke(Event):
    """Dynamo split a function at a call that cannot be compiled."""

    op: str
    reason: str
    location: str = ""
    """``file:line`` of the call in the user's program, where it is known."""


@dataclass(frozen=True, slots=True)
class GraphFellBack(Event):
    """A graph did not compile or run, and runs operator by operator from now on; one for each such graph."""

    graph: str
    reason: str
