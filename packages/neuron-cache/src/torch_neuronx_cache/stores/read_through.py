"""A local store in front of a remote one: what was fetched once is read from the disk, and a remote store that is down
does not stop the work."""

from collections.abc import Iterable, Iterator

from torch_neuronx_cache.errors import StoreError
from torch_neuronx_cache.notices import say_once
from torch_neuronx_cache.stores.file import FileStore
from torch_neuronx_cache.stores.interface import Blob, Store, StoredBlob


class ReadThroughStore(Store):
    """Reads the local store first; what comes from the remote one is kept locally. Writes go to both.

    A listing shows the remote store. Bounds, holds and uses concern the local one: a laptop must not prune the bucket
    of a fleet.
    """

    is_remote = True

    def __init__(self, local: FileStore, remote: Store) -> None:
        super().__init__(remote.url, remote.options)
        self.local = local
        self.remote = remote

    @property
    def bounded(self) -> Store:
        """The local store."""
        return self.local

    def read(self, digest: str) -> bytes | None:
        """Read locally, else remotely."""
        blob = self.local.read(digest)
        return self._fetch(digest) if blob is None else blob

    def open(self, digest: str) -> Blob | None:
        """Open locally, else fetch the whole."""
        blob = self.local.open(digest)
        if blob is not None:
            return blob
        fetched = self._fetch(digest)
        return None if fetched is None else Blob(fetched)

    def peek(self, digest: str) -> Blob | None:
        """Look locally, else remotely, and keep nothing."""
        return self.local.open(digest) or self.remote.peek(digest)

    def write(self, digest: str, blob: bytes) -> None:
        """Write locally, then remotely; a local failure is told and does not keep the entry from the remote store."""
        self._keep(digest, blob)
        self.remote.write(digest, blob)

    def remove(self, digest: str) -> bool:
        """Remove from both."""
        here = self.local.remove(digest)
        return self.remote.remove(digest) or here

    def scan(self) -> Iterator[StoredBlob]:
        """List the remote store."""
        return self.remote.scan()

    def set_aside(self, digest: str, reason: str) -> str | None:
        """Set the local copy aside, where it is damaged; else the remote entry."""
        kept_at = self.local.set_aside(digest, reason)
        return kept_at or self.remote.set_aside(digest, reason)

    def record_use(self, digest: str) -> None:
        """Count the use locally."""
        self.local.record_use(digest)

    def hold(self, digest: str) -> None:
        """Hold the local copy."""
        self.local.hold(digest)

    def release(self, digest: str) -> None:
        """Release the local copy."""
        self.local.release(digest)

    def evict(self, digests: Iterable[str]) -> list[str]:
        """Evict local copies."""
        return self.local.evict(digests)

    def sweep(self) -> int:
        """Sweep the local store."""
        return self.local.sweep()

    def close(self) -> None:
        """Close both."""
        self.local.close()
        self.remote.close()

    def _fetch(self, digest: str) -> bytes | None:
        blob = self.remote.read(digest)
        if blob is not None:
            self._keep(digest, blob)
        return blob

    def _keep(self, digest: str, blob: bytes) -> None:
        try:
            self.local.write(digest, blob)
        except StoreError as error:
            say_once(
                f"read-through {self.local.url}",
                f"{error} Entries of {self.url} are fetched anew by every process.",
            )
