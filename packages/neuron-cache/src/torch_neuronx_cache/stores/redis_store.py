"""The store ``redis://``: a Redis or Valkey server, for small fleets without a shared file system.

``redis://host:port/database?prefix=neff:`` (``rediss://`` with TLS). An entry is the string ``<prefix><digest>``;
beside it lies the hash ``<prefix><digest>:use`` with its times and hits. A server with ``maxmemory`` set may drop
either at will: what is gone is compiled again.
"""

import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, cast
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

from torch_neuronx_cache.keys import is_digest
from torch_neuronx_cache.stores.interface import Blob, RangeBlob, Store, StoredBlob, StoreOptions
from torch_neuronx_cache.stores.patience import Patience

if TYPE_CHECKING:
    from redis import Redis  # type: ignore[import-not-found, unused-ignore]

DEFAULT_PREFIX = "torch_neuronx_cache:"
SOCKET_TIMEOUT = 10.0
"""Seconds for which a server may take to answer."""

_USE = ":use"


class RedisStore(Store):
    """Entries as strings of a Redis server."""

    is_remote: ClassVar[bool] = True

    def __init__(self, url: str, options: StoreOptions | None = None) -> None:
        super().__init__(url, options)
        parts = urlsplit(url)
        query = parse_qs(parts.query)
        self.prefix = query.pop("prefix", [DEFAULT_PREFIX])[0]
        self._server = urlunsplit(parts._replace(query=urlencode(query, doseq=True)))
        self._by_pid: dict[int, Redis] = {}
        self._patience = Patience(url)

    def read(self, digest: str) -> bytes | None:
        """Return the string."""
        return self._patience.ask("read", lambda: cast("bytes | None", self._client().get(self.prefix + digest)))

    def open(self, digest: str) -> Blob | None:
        """Open for reading in ranges."""
        size = self._patience.ask("read", lambda: self._client().strlen(self.prefix + digest))
        return RangeBlob(self.read_range, digest, size) if size else None

    def read_range(self, digest: str, start: int, end: int) -> bytes:
        """Return the bytes from ``start`` to ``end``; nothing when the entry went meanwhile."""
        name = self.prefix + digest
        return self._patience.ask("read", lambda: cast("bytes", self._client().getrange(name, start, end - 1))) or b""

    def write(self, digest: str, blob: bytes) -> None:
        """Set the string and its times in one transaction."""

        def put() -> None:
            now = time.time()
            with self._client().pipeline() as both:
                both.set(self.prefix + digest, blob)
                both.delete(self.prefix + digest + _USE)
                both.hset(self.prefix + digest + _USE, mapping={"created": now, "used": now, "hits": 0})
                both.execute()

        self._patience.ask("written", put)

    def remove(self, digest: str) -> bool:
        """Delete the string and its times."""

        def delete() -> bool:
            with self._client().pipeline() as both:
                both.delete(self.prefix + digest)
                both.delete(self.prefix + digest + _USE)
                return bool(both.execute()[0])

        return self._patience.ask("removed", delete) or False

    def scan(self) -> Iterator[StoredBlob]:
        """List the entries, a page at a time."""
        digests = self._patience.ask("listed", self._digests) or []
        for start in range(0, len(digests), 500):
            page = digests[start : start + 500]
            yield from self._patience.ask("listed", lambda page=page: self._describe(page)) or []  # type: ignore[misc]

    def _digests(self) -> list[str]:
        names = self._client().scan_iter(match=_literally(self.prefix) + "*", count=1000)
        digests = {name.decode("utf-8", "replace").removeprefix(self.prefix) for name in names}
        return sorted(filter(is_digest, digests))

    def _describe(self, digests: list[str]) -> list[StoredBlob]:
        with self._client().pipeline(transaction=False) as many:
            for digest in digests:
                many.strlen(self.prefix + digest)
                many.hgetall(self.prefix + digest + _USE)
            answers = many.execute()
        found = []
        for number, digest in enumerate(digests):
            size, use = answers[2 * number], answers[2 * number + 1]
            if size:
                created = float(use.get(b"created", time.time()))
                used = max(created, float(use.get(b"used", created)))
                found.append(StoredBlob(digest, size, created, used, int(use.get(b"hits", 0))))
        return found

    def record_use(self, digest: str) -> None:
        """Count the use, if the server is there."""
        from redis import RedisError

        try:
            client = self._client()
            if client.exists(self.prefix + digest):
                with client.pipeline() as both:
                    both.hincrby(self.prefix + digest + _USE, "hits", 1)
                    both.hset(self.prefix + digest + _USE, "used", time.time())
                    both.execute()
        except RedisError:  # only a count is lost
            return

    def close(self) -> None:
        """Close this process's connections."""
        client = self._by_pid.pop(os.getpid(), None)
        if client is not None:
            client.close()

    def _client(self) -> "Redis":
        """Connections do not survive a fork, so each process has its own."""
        pid = os.getpid()
        if pid not in self._by_pid:
            from redis import Redis

            self._by_pid[pid] = Redis.from_url(self._server, socket_timeout=SOCKET_TIMEOUT)
        return self._by_pid[pid]


def _literally(text: str) -> str:
    """Quote what a pattern of Redis's would take as a wildcard."""
    return "".join(f"\\{letter}" if letter in "*?[]\\^-" else letter for letter in text)
