"""The store: a table of blobs, one short-lived connection for each operation."""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

from torch_neuronx_cache import Store, StoredBlob, StoreOptions
from torch_neuronx_cache.errors import StoreError

TABLE = "CREATE TABLE IF NOT EXISTS entries (digest TEXT PRIMARY KEY, blob BLOB, created REAL, used REAL, hits INTEGER)"


class SqliteStore(Store):
    """Entries in one file. Who may load them is decided by the file's owner and mode, as for a directory."""

    def __init__(self, url: str, options: StoreOptions | None = None) -> None:
        super().__init__(url, options)
        self.path = url.partition("://")[2]

    def read(self, digest: str) -> bytes | None:
        """Return the blob."""
        with self._connection() as connection:
            row = connection.execute("SELECT blob FROM entries WHERE digest = ?", (digest,)).fetchone()
        return bytes(row[0]) if row else None

    def write(self, digest: str, blob: bytes) -> None:
        """Insert or replace the row."""
        now = time.time()
        with self._connection() as connection:
            connection.execute("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?, 0)", (digest, blob, now, now))

    def remove(self, digest: str) -> bool:
        """Delete the row."""
        with self._connection() as connection:
            return connection.execute("DELETE FROM entries WHERE digest = ?", (digest,)).rowcount > 0

    def scan(self) -> Iterator[StoredBlob]:
        """List the rows."""
        with self._connection() as connection:
            rows = connection.execute("SELECT digest, length(blob), created, used, hits FROM entries").fetchall()
        return (StoredBlob(*row) for row in rows)

    def record_use(self, digest: str) -> None:
        """Count the use."""
        try:
            with self._connection() as connection:
                connection.execute(
                    "UPDATE entries SET used = ?, hits = hits + 1 WHERE digest = ?", (time.time(), digest)
                )
        except StoreError:  # a store that can only be read keeps no count
            return

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """Open the file, private and checked, for one transaction."""
        try:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
            self.options.trust.check_file(os.stat(self.path), self.path)
            with closing(sqlite3.connect(self.path, timeout=30)) as connection, connection:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = NORMAL")
                connection.execute(TABLE)
                yield connection
        except StoreError:
            raise
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"{self.url} cannot be used: {error}.") from error
