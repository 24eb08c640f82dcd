"""Stores on any file system that fsspec knows: ``s3://``, ``gs://``, ``memory://``, ``sftp://`` and others.

Entries lie at ``URL/ab/<digest>``.
"""

import os
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from torch_neuronx_cache.keys import is_digest
from torch_neuronx_cache.stores.interface import Blob, RangeBlob, Store, StoredBlob, StoreOptions
from torch_neuronx_cache.stores.patience import Patience

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem  # type: ignore[import-untyped, import-not-found, unused-ignore]

WHOLE_OBJECT_SCHEMES = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "memory", "oci", "oss"})
"""Where a write shows up complete or not at all; elsewhere a temporary file is moved into place."""

T = TypeVar("T")


class FsspecStore(Store):
    """Entries on a file system of fsspec's; its credentials and settings are those of fsspec's configuration."""

    is_remote: ClassVar[bool] = True

    def __init__(self, url: str, options: StoreOptions | None = None) -> None:
        super().__init__(url.rstrip("/"), options)
        self._by_pid: dict[int, tuple[AbstractFileSystem, str]] = {}
        self._patience = Patience(self.url)

    def read(self, digest: str) -> bytes | None:
        """Read the whole object."""
        return self._try("read", lambda fs, root: _bytes(fs.cat_file(_path(root, digest))))

    def open(self, digest: str) -> Blob | None:
        """Open for reading in ranges."""
        size = self._try("read", lambda fs, root: int(fs.info(_path(root, digest))["size"]))
        return None if size is None else RangeBlob(self.read_range, digest, size)

    def read_range(self, digest: str, start: int, end: int) -> bytes:
        """Return the bytes from ``start`` to ``end``; nothing when the object went meanwhile."""
        return self._try("read", lambda fs, root: _bytes(fs.cat_file(_path(root, digest), start=start, end=end))) or b""

    def write(self, digest: str, blob: bytes) -> None:
        """Put the object, or write a temporary file and move it."""

        def put(fs: "AbstractFileSystem", root: str) -> None:
            path = _path(root, digest)
            if _scheme(self.url) in WHOLE_OBJECT_SCHEMES:
                fs.pipe_file(path, blob)
                return
            temporary = f"{root}/tmp/{digest}.{os.urandom(8).hex()}"
            for directory in (f"{root}/tmp", f"{root}/{digest[:2]}"):
                fs.makedirs(directory, exist_ok=True)
            fs.pipe_file(temporary, blob)
            fs.mv(temporary, path)

        self._try("written", put)

    def remove(self, digest: str) -> bool:
        """Remove the object."""

        def delete(fs: "AbstractFileSystem", root: str) -> bool:
            path = _path(root, digest)
            if not fs.exists(path):  # object stores delete what is not there without a word
                return False
            fs.rm_file(path)
            return True

        return self._try("removed", delete) or False

    def scan(self) -> Iterator[StoredBlob]:
        """List all objects; their time is that of their creation."""

        def find(fs: "AbstractFileSystem", root: str) -> dict[str, dict[str, Any]]:
            fs.invalidate_cache()
            found: dict[str, dict[str, Any]] = fs.find(root, detail=True)
            return found

        for path, info in (self._try("listed", find) or {}).items():
            shard, _, name = path.rpartition("/")
            if is_digest(name) and shard.endswith(f"/{name[:2]}"):
                created = _created(info)
                yield StoredBlob(name, int(info["size"]), created, created)

    def set_aside(self, digest: str, reason: str) -> str | None:
        """Move the object below ``aside/``."""
        name = f"{digest}.{int(time.time())}.{os.urandom(4).hex()}"

        def move(fs: "AbstractFileSystem", root: str) -> str | None:
            if not fs.exists(_path(root, digest)):
                return None
            fs.makedirs(f"{root}/aside", exist_ok=True)
            fs.mv(_path(root, digest), f"{root}/aside/{name}")
            return f"{self.url}/aside/{name}"

        return self._try("set aside", move)

    def _try(self, what: str, do: "Callable[[AbstractFileSystem, str], T]") -> T | None:
        return self._patience.ask(what, lambda: do(*self._file_system()))

    def _file_system(self) -> "tuple[AbstractFileSystem, str]":
        """Connections do not survive a fork, so each process has its own."""
        pid = os.getpid()
        if pid not in self._by_pid:
            from fsspec.core import url_to_fs  # type: ignore[import-untyped, import-not-found, unused-ignore]

            file_system, root = url_to_fs(self.url, use_listings_cache=False)
            self._by_pid[pid] = (file_system, root.rstrip("/"))
        return self._by_pid[pid]


def _bytes(data: object) -> bytes:
    if not isinstance(data, bytes):
        raise TypeError(f"the file system returned {type(data).__name__} instead of bytes")
    return data


def _path(root: str, digest: str) -> str:
    return f"{root}/{digest[:2]}/{digest}"


def _scheme(url: str) -> str:
    return url.partition("://")[0]


def _created(info: dict[str, Any]) -> float:
    """Find the time in what a file system says about an object: no two of them call it the same."""
    for name in ("LastModified", "last_modified", "mtime", "updated", "modified", "created"):
        value = info.get(name)
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, int | float):
            return float(value)
        if isinstance(value, str):
            try:
                return datetime.fromisoformat(value).timestamp()
            except ValueError:
                continue
    return time.time()
