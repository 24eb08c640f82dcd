"""The memory layer: contents by digest, least recently used first out, with a bound in bytes."""

import os
import threading
import weakref
from collections.abc import Callable

from cachetools import LRUCache


class MemoryLayer:
    """A thread-safe LRU of bytes. A fork inherits the contents."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._contents: LRUCache[str, bytes] = LRUCache(max_bytes, getsizeof=len)
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=_renew_lock(weakref.ref(self)))

    def __len__(self) -> int:
        return len(self._contents)

    @property
    def size(self) -> int:
        """Bytes kept."""
        return int(self._contents.currsize)

    def get(self, digest: str) -> bytes | None:
        """Return the content and mark it as used."""
        with self._lock:
            return self._contents.get(digest)

    def put(self, digest: str, content: bytes) -> None:
        """Keep the content; drop older ones until it fits. One that is larger than the bound is not kept."""
        with self._lock:
            self._contents.pop(digest, None)
            if len(content) <= self.max_bytes:
                self._contents[digest] = content

    def drop(self, digest: str) -> None:
        """Forget one content."""
        with self._lock:
            self._contents.pop(digest, None)

    def clear(self) -> None:
        """Forget all contents."""
        with self._lock:
            self._contents.clear()


def _renew_lock(layer: "weakref.ref[MemoryLayer]") -> Callable[[], None]:
    """In a forked child the lock may be held by a thread that does not exist there."""

    def renew() -> None:
        alive = layer()
        if alive is not None:
            alive._lock = threading.Lock()

    return renew
