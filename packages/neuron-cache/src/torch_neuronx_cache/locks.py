"""One lock for each key, in a local directory: N processes that want one key make it once.

The lock itself is filelock's (``flock``): the kernel frees it the moment its holder dies. Beside it lies a note that
says who holds it, for the message of a wait that took too long.
"""

import json
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from blake3 import blake3

from torch_neuronx_cache import processes
from torch_neuronx_cache.errors import LockTimeoutError, StoreError, StoreRefusedError
from torch_neuronx_cache.trust import Trust

if TYPE_CHECKING:
    from filelock import FileLock

TIMEOUT_VARIABLE = "TORCH_NEURONX_NEFF_CACHE_LOCK_TIMEOUT"
LOCAL_VARIABLE = "TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR"

FIRST_POLL = 0.005
LONGEST_POLL = 0.1
"""Seconds between two tries for a lock that is held; the pause doubles from the first to the longest."""

ABANDONED_AGE = 3600.0
"""Seconds after which :meth:`KeyLocks.sweep` removes the lock file of a holder that was killed."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lock."""

    pid: int
    host: str
    since: float
    """Seconds since 1970."""

    def describe(self) -> str:
        """Say who, where and since when."""
        since = datetime.fromtimestamp(self.since).astimezone().isoformat(timespec="seconds")
        return f"process {self.pid} on {self.host} since {since} ({time.time() - self.since:.0f} s ago)"


@dataclass(frozen=True, slots=True)
class Acquired:
    """How a lock was got."""

    waited: float
    """Seconds for which another process held it; 0 when it was free."""


class KeyLocks:
    """The locks of one store, in ``directory/locks/<name of the store>/``.

    ``scope`` tells stores apart: the same key in two stores is two locks.
    """

    def __init__(self, directory: str | os.PathLike[str], scope: str, timeout: float) -> None:
        self.directory = Path(directory)
        self.timeout = timeout
        self._locks = self.directory / "locks" / blake3(scope.encode()).hexdigest()[:16]

    @contextmanager
    def acquire(self, digest: str, timeout: float | None = None) -> Iterator[Acquired]:
        """Hold the lock of a key.

        Raises :class:`LockTimeoutError` after ``timeout`` seconds (those of the constructor by default), and
        :class:`StoreError` when the directory cannot be used for locks.
        """
        lock = self._lock(digest)
        waited = self._wait(lock, digest, self.timeout if timeout is None else timeout)
        note = self._locks / f"{digest}.holder"
        me = processes.current()
        with suppress(OSError):  # only the message of a timeout would be poorer
            note.write_text(json.dumps(asdict(Holder(me.pid, me.host, time.time()))))
        try:
            yield Acquired(waited)
        finally:
            # Whoever opened the file before it went finds it unlinked once it has the lock, and starts anew.
            for path in (note, Path(lock.lock_file)):
                with suppress(OSError):
                    path.unlink()
            lock.release()

    def holder(self, digest: str) -> Holder | None:
        """Return who noted that it holds the lock; None when nobody did, or the note is being written."""
        try:
            note = json.loads((self._locks / f"{digest}.holder").read_text())
            return Holder(note["pid"], note["host"], note["since"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def sweep(self) -> int:
        """Remove lock files whose holders were killed; return their number."""
        swept = 0
        with suppress(StoreError, FileNotFoundError):
            self._check()
            for path in list(self._locks.glob("*.lock")):
                with suppress(OSError):
                    if time.time() - path.stat().st_mtime < ABANDONED_AGE:
                        continue
                    lock = self._lock(path.stem)
                    if _try(lock):
                        for file in (path.with_suffix(".holder"), path):
                            file.unlink(missing_ok=True)
                        lock.release()
                        swept += 1
        return swept

    def _wait(self, lock: "FileLock", digest: str, timeout: float) -> float:
        start = time.monotonic()
        pause = FIRST_POLL
        if _try(lock):
            return 0.0
        while True:
            left = start + timeout - time.monotonic()
            if left <= 0:
                raise self._timed_out(digest)
            time.sleep(min(pause, left))
            if _try(lock):
                return time.monotonic() - start
            pause = min(2 * pause, LONGEST_POLL)

    def _timed_out(self, digest: str) -> LockTimeoutError:
        holder = self.holder(digest)
        who = holder.describe() if holder else "a process that left no note"
        return LockTimeoutError(
            f"Waited {self.timeout:g} s for the compile lock of key {digest}, held by {who}. If that compile is still "
            f"at work, raise {TIMEOUT_VARIABLE} (seconds); if that process hangs, end it and the lock is free at once."
        )

    def _lock(self, digest: str) -> "FileLock":
        from filelock import FileLock

        self._check(create=True)
        return FileLock(self._locks / f"{digest}.lock", mode=0o600, thread_local=False, fallback_to_soft=False)

    def _check(self, *, create: bool = False) -> None:
        try:
            for directory in (self.directory, self.directory / "locks", self._locks):
                if create:
                    directory.mkdir(mode=0o700, parents=directory == self.directory, exist_ok=True)
                status = os.lstat(directory)
                if stat.S_ISLNK(status.st_mode):
                    raise StoreRefusedError(f"{directory} is a symbolic link; it is not used for locks.")
                Trust().check_directory(status, str(directory))
        except StoreRefusedError as error:
            raise StoreRefusedError(f"{error} Or point {LOCAL_VARIABLE} at a directory of your own.") from error
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StoreError(f"{self._locks} cannot hold locks: {error.strerror or error}.") from error


def _try(lock: "FileLock") -> bool:
    from filelock import Timeout

    try:
        lock.acquire(blocking=False)
    except Timeout:
        return False
    except OSError as error:
        raise StoreError(f"{lock.lock_file} cannot be locked: {error.strerror or error}.") from error
    return True
