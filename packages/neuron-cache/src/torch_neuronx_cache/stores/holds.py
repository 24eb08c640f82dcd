"""Holds: which entries running processes rely on, as one append-only file for each process.

A file is named after its process (``machine-pid-started.random``), so that another process can tell without asking
whether it still counts. A line is ``+digest`` or ``-digest``.
"""

import fcntl
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

from torch_neuronx_cache import processes

FOREIGN_HOLD_AGE = 7 * 24 * 3600.0
"""Seconds for which the holds of a process on another host count after it last wrote: it cannot be asked."""

LONGEST_WAIT = 2.0
"""Seconds for which adding a hold waits for an eviction, and the other way round."""

_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def exclusive(directory: int) -> Iterator[None]:
    """Keep every process from adding a hold meanwhile; without effect where the file system has no ``flock``."""
    with _flocked(directory, fcntl.LOCK_EX):
        yield


def _shared(directory: int) -> AbstractContextManager[None]:
    return _flocked(directory, fcntl.LOCK_SH)


@contextmanager
def _flocked(directory: int, kind: int) -> Iterator[None]:
    """Lock an open directory; after a while go on without, since a stopped process must not stop the others."""
    locked = False
    until = time.monotonic() + LONGEST_WAIT
    with suppress(OSError):
        while not locked:
            try:
                fcntl.flock(directory, kind | fcntl.LOCK_NB)
                locked = True
            except BlockingIOError:
                if time.monotonic() > until:
                    break
                time.sleep(0.001)
    try:
        yield
    finally:
        if locked:
            fcntl.flock(directory, fcntl.LOCK_UN)


class _OwnHolds:
    """The holds of one process; a forked child starts with none."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.digests: set[str] = set()
        self.file: int | None = None
        self.directory: int | None = None
        self.name = ""


class Holds:
    """Writes this process's holds and reads those of all."""

    def __init__(self) -> None:
        self._by_pid: dict[int, _OwnHolds] = {}
        self._seen: dict[str, tuple[int, int, frozenset[str]]] = {}

    def has(self, digest: str) -> bool:
        """Say whether this process holds the digest."""
        return digest in self._own().digests

    def add(self, digest: str, open_directory: Callable[[], int]) -> None:
        """Hold a digest; ``open_directory`` returns a descriptor of the directory of holds, which is then ours."""
        own = self._own()
        with own.lock:
            if own.file is None or own.directory is None:
                own.directory = open_directory()
                own.name = f"{processes.current().tag}.{os.urandom(4).hex()}"
                mode = 0o600 | os.fstat(own.directory).st_mode & 0o044
                own.file = os.open(own.name, _FLAGS, mode, dir_fd=own.directory)
            with _shared(own.directory):
                os.write(own.file, f"+{digest}\n".encode())
            own.digests.add(digest)

    def discard(self, digest: str) -> None:
        """Release a digest."""
        own = self._own()
        with own.lock:
            own.digests.discard(digest)
            if own.file is not None:
                with suppress(OSError):
                    os.write(own.file, f"-{digest}\n".encode())

    def close(self) -> None:
        """Release all, and remove this process's file."""
        own = self._by_pid.pop(os.getpid(), None)
        if own is None or own.file is None or own.directory is None:
            return
        with suppress(OSError):
            os.unlink(own.name, dir_fd=own.directory)
        os.close(own.file)
        os.close(own.directory)

    def of_running_processes(self, directory: int) -> frozenset[str]:
        """Read all files of an open directory of holds; remove those of dead processes."""
        held: set[str] = set()
        for name in os.listdir(directory):
            with suppress(FileNotFoundError, PermissionError):
                status = os.stat(name, dir_fd=directory, follow_symlinks=False)
                alive = processes.is_alive(name.partition(".")[0])
                if alive is False or (alive is None and time.time() - status.st_mtime > FOREIGN_HOLD_AGE):
                    os.unlink(name, dir_fd=directory)
                    self._seen.pop(name, None)
                elif stat.S_ISREG(status.st_mode):
                    held |= self._read(directory, name, status)
        return frozenset(held)

    def _read(self, directory: int, name: str, status: os.stat_result) -> frozenset[str]:
        seen = self._seen.get(name)
        if seen and seen[:2] == (status.st_size, status.st_ino):  # the file only grows
            return seen[2]
        digests: set[str] = set()
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        with os.fdopen(file, encoding="ascii", errors="replace") as lines:
            for line in lines:
                (digests.add if line.startswith("+") else digests.discard)(line[1:].rstrip("\n"))
        self._seen[name] = (status.st_size, status.st_ino, frozenset(digests))
        return self._seen[name][2]

    def _own(self) -> _OwnHolds:
        pid = os.getpid()
        return self._by_pid.get(pid) or self._by_pid.setdefault(pid, _OwnHolds())
