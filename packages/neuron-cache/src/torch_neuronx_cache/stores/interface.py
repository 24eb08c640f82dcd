"""What a store is: blobs under digests at one URL. It knows nothing of keys, signatures or compilers."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Self

from torch_neuronx_cache.trust import Trust


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """What the cache tells a store when it opens it."""

    trust: Trust = field(default_factory=Trust)


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """One blob as the store lists it."""

    digest: str
    size: int
    """Bytes."""
    created: float
    """Seconds since 1970."""
    used: float
    """Last use, seconds since 1970; the time of creation where the store does not keep uses."""
    hits: int = 0


class Blob:
    """A blob that is open for reading: a context manager over its size and its bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)

    def read(self, start: int, length: int) -> bytes:
        """Return up to ``length`` bytes from ``start``; fewer only at the end."""
        return self._data[start : start + length]

    def close(self) -> None:
        """Release what the reading holds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RangeBlob(Blob):
    """A blob of a remote store, of which only the ranges that are asked for are fetched.

    ``read_range`` takes a digest and the positions of the first byte and of the one after the last.
    """

    def __init__(self, read_range: Callable[[str, int, int], bytes], digest: str, size: int) -> None:
        super().__init__(b"")
        self._read_range = read_range
        self._digest = digest
        self.size = size

    def read(self, start: int, length: int) -> bytes:
        """Fetch up to ``length`` bytes from ``start``; fewer only at the end."""
        end = min(start + length, self.size)
        return self._read_range(self._digest, start, end) if start < end else b""


class Store(ABC):
    """Blobs by digest. Every method may be called from several threads, and after a fork.

    Names are digests (64 lower-case hexadecimal digits); the cache never passes anything else. A store need not check
    what it returns: every blob carries hashes that the cache checks. It must keep these promises:

    * ``write`` is atomic: a reader at any moment sees the old blob, the new one, or none; never a part of one. When it
      returns, the blob survives a crash of the process. Several writers of one digest: one of them wins.
    * ``read`` of a digest that is not there returns None; a store that cannot be reached raises
      :class:`~torch_neuronx_cache.errors.StoreError`.
    * a store that refuses a blob for whom it belongs to raises
      :class:`~torch_neuronx_cache.errors.StoreRefusedError`.
    """

    is_remote: ClassVar[bool] = False
    """Whether the store is reached over a network."""

    def __init__(self, url: str, options: StoreOptions | None = None) -> None:
        self.url = url
        self.options = options or StoreOptions()

    @property
    def bounded(self) -> "Store":
        """The store that limits apply to: itself, but for a store that is a local layer over another."""
        return self

    @abstractmethod
    def read(self, digest: str) -> bytes | None:
        """Return the blob; None when there is none."""

    @abstractmethod
    def write(self, digest: str, blob: bytes) -> None:
        """Store the blob, in place of an older one. Raises ``StoreError`` with nothing left behind."""

    @abstractmethod
    def remove(self, digest: str) -> bool:
        """Remove the blob; return whether there was one."""

    @abstractmethod
    def scan(self) -> Iterator[StoredBlob]:
        """List the blobs, in any order. Blobs that come or go meanwhile may be listed or not."""

    def open(self, digest: str) -> Blob | None:
        """Open the blob to read parts of it; None when there is none. Worth overriding where parts are cheaper."""
        data = self.read(digest)
        return None if data is None else Blob(data)

    def peek(self, digest: str) -> Blob | None:
        """Open the blob for a look at its beginning, without fetching the rest for later."""
        return self.open(digest)

    def can_write(self) -> bool:
        """Say, cheaply, whether a write has a chance. A wrong True costs a failed write."""
        return True

    def set_aside(self, digest: str, reason: str) -> str | None:
        """Take a bad blob out of use; return where it is kept for inspection, or None when it was removed."""
        self.remove(digest)
        return None

    def record_use(self, digest: str) -> None:
        """Note that the blob was read, for the order of eviction and the count of hits. Must not raise."""
        return

    def hold(self, digest: str) -> None:
        """Keep :meth:`evict` of any process from removing the blob until released or until this process ends."""
        return

    def release(self, digest: str) -> None:
        """Undo :meth:`hold`."""
        return

    def evict(self, digests: Iterable[str]) -> list[str]:
        """Remove those blobs that no running process holds; return the ones removed."""
        return [digest for digest in digests if self.remove(digest)]

    def sweep(self) -> int:
        """Remove what dead processes left half done; return the number of files or objects removed."""
        return 0

    def close(self) -> None:
        """Release what this process holds in the store. The store may be used again."""
        return
