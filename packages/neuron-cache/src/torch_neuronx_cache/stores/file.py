"""The store ``file://``: a directory, safe to share between processes and, where trusted, between users and hosts.

Layout::

    ROOT/ab/<digest>         an entry; mode follows the directory's, never writable by others
    ROOT/ab/<digest>.uses    one byte for each use; its time is the last use
    ROOT/tmp/                files being written, named after the process
    ROOT/holds/              one file for each process: the digests that it holds
    ROOT/aside/              entries that failed their checks

Every operation opens ROOT anew without following a symbolic link, checks owner and mode on the open directory, and
works relative to that descriptor: what was checked is what is used, whatever happens to the path meanwhile.
"""

import errno
import itertools
import os
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from torch_neuronx_cache import processes
from torch_neuronx_cache.errors import StoreError, StoreRefusedError
from torch_neuronx_cache.keys import is_digest
from torch_neuronx_cache.stores.holds import Holds, exclusive
from torch_neuronx_cache.stores.interface import Blob, Store, StoredBlob, StoreOptions

FOREIGN_TEMPORARY_AGE = 24 * 3600.0
"""Seconds after which a temporary file of a process that this host cannot ask about counts as left behind."""

USE_INTERVAL = 60.0
"""Seconds between two writes of the uses of one entry by one process; uses in between are counted with the next."""

ASIDE_AGE = 7 * 24 * 3600.0
"""Seconds for which an entry that was set aside is kept."""

EVICTION_BATCH = 128
"""Entries that are removed at a time while no process can add a hold."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_USES = ".uses"


class FileStore(Store):
    """A directory of entries.

    ``durable=False`` leaves out every fsync: faster, and a crash of the machine (not of the process) may lose entries,
    which are then found out and compiled again.
    """

    def __init__(
        self, path: str | os.PathLike[str], options: StoreOptions | None = None, *, durable: bool = True
    ) -> None:
        self.path = os.path.abspath(path)
        super().__init__(f"file://{self.path}", options)
        self.durable = durable
        self.use_interval = USE_INTERVAL
        self._uses: dict[str, tuple[float, int]] = {}
        self._swept = False
        self._holds = Holds()
        self._counter = itertools.count()

    # ---- reading

    def read(self, digest: str) -> bytes | None:
        """Return the entry's bytes. Raises :class:`StoreRefusedError` when they could be another user's."""
        try:
            blob = self.open(digest)
            if blob is None:
                return None
            with blob:
                return blob.read(0, blob.size)
        except OSError as error:
            if isinstance(error, StoreError):
                raise
            raise self._failed("read", digest, error) from error

    def open(self, digest: str) -> Blob | None:
        """Open the entry, checked.

        What decides is asked of the open file: its owner and mode. The directories above are checked by name, which
        says the same but for a swap in between, and such a swap can only bring up another file of a trusted owner.
        """
        shard = f"{self.path}/{digest[:2]}"
        try:
            self._check_by_name(self.path)
            self._check_by_name(shard)
            path = f"{shard}/{digest}"
            try:
                file = os.open(path, _READ)
            except OSError as error:
                if error.errno == errno.ELOOP:
                    raise StoreRefusedError(f"The entry {path} is a symbolic link; it is not followed.") from error
                raise
            try:
                status = os.fstat(file)
                if not stat.S_ISREG(status.st_mode):
                    os.close(file)
                    return Blob(
                        b""
                    )  # a directory or a device in the place of an entry: no entry, and found out as such
                self.options.trust.check_file(status, path)
                return _OpenFile(file, status.st_size)
            except StoreRefusedError:
                os.close(file)
                raise
        except (FileNotFoundError, NotADirectoryError):
            return None
        except StoreError:
            raise
        except OSError as error:
            raise self._failed("read", digest, error) from error

    def _check_by_name(self, path: str) -> None:
        status = os.lstat(path)
        if stat.S_ISLNK(status.st_mode):
            raise _is_a_link(path)
        self.options.trust.check_directory(status, path)

    def scan(self) -> Iterator[StoredBlob]:
        """List the entries, shard by shard. Raises :class:`StoreRefusedError` for a directory that is not trusted."""
        try:
            with self._root() as root:
                shards = sorted(name for name in os.listdir(root) if _is_shard(name))
            for name in shards:
                yield from self._scan_shard(name)
        except FileNotFoundError:
            return

    def _scan_shard(self, name: str) -> list[StoredBlob]:
        entries: dict[str, os.stat_result] = {}
        uses: dict[str, os.stat_result] = {}
        try:
            with self._root() as root, self._shard(root, name) as shard, os.scandir(shard) as listing:
                for item in listing:
                    stem = item.name.removesuffix(_USES)
                    if not is_digest(stem):
                        continue
                    with suppress(FileNotFoundError):
                        (entries if stem == item.name else uses)[stem] = item.stat(follow_symlinks=False)
        except (FileNotFoundError, StoreRefusedError):
            return []
        found = []
        for digest, status in entries.items():
            use = uses.get(digest)
            used = max(status.st_mtime, use.st_mtime) if use else status.st_mtime
            found.append(StoredBlob(digest, status.st_size, status.st_mtime, used, use.st_size if use else 0))
        return found

    # ---- writing

    def can_write(self) -> bool:
        """Say whether the directory exists, or can be made, and this user may write there."""
        if os.path.isdir(self.path):
            return os.access(self.path, os.W_OK | os.X_OK)
        parent = Path(self.path)
        while not parent.exists() and parent != parent.parent:
            parent = parent.parent
        return parent.is_dir() and os.access(parent, os.W_OK | os.X_OK)

    def write(self, digest: str, blob: bytes) -> None:
        """Write to a temporary file, fsync, rename, fsync the directory."""
        if not self._swept:
            self._swept = True
            self.sweep()
        try:
            with self._root(create=True) as root:
                permissions = os.fstat(root).st_mode
                with self._made(root, "tmp", permissions) as tmp, self._made(root, digest[:2], permissions) as shard:
                    temporary = self._temporary(digest)
                    file = os.open(temporary, _CREATE, 0o600, dir_fd=tmp)
                    try:
                        try:
                            _write_all(file, blob)
                            _stamp(file)
                            # readable by those who may read the directory, writable by nobody else
                            os.fchmod(file, 0o600 | permissions & 0o044)
                            if self.durable:
                                os.fsync(file)
                        finally:
                            os.close(file)
                        self._move_in(tmp, temporary, shard, digest)
                    except BaseException:
                        with suppress(OSError):
                            os.unlink(temporary, dir_fd=tmp)
                        raise
                    if self.durable:
                        os.fsync(shard)
        except StoreError:
            raise
        except OSError as error:
            raise self._failed("written", digest, error) from error

    def _move_in(self, tmp: int, temporary: str, shard: int, digest: str) -> None:
        try:
            os.rename(temporary, digest, src_dir_fd=tmp, dst_dir_fd=shard)
        except IsADirectoryError:
            self.set_aside(digest, "a directory in the place of an entry")
            os.rename(temporary, digest, src_dir_fd=tmp, dst_dir_fd=shard)

    def remove(self, digest: str) -> bool:
        """Unlink the entry and its count of uses."""
        try:
            with self._root() as root, self._shard(root, digest) as shard:
                with suppress(FileNotFoundError):
                    os.unlink(digest + _USES, dir_fd=shard)
                os.unlink(digest, dir_fd=shard)
        except FileNotFoundError:
            return False
        except IsADirectoryError:
            return self.set_aside(digest, "a directory in the place of an entry") is not None
        except StoreError:
            raise
        except OSError as error:
            raise self._failed("removed", digest, error) from error
        return True

    def set_aside(self, digest: str, reason: str) -> str | None:
        """Move the bad entry to ``aside/``, where the next runs do not see it."""
        name = f"{digest}.{int(time.time())}.{os.urandom(4).hex()}"
        try:
            with (
                self._root() as root,
                self._shard(root, digest) as shard,
                self._made(root, "aside", os.fstat(root).st_mode) as aside,
            ):
                os.rename(digest, name, src_dir_fd=shard, dst_dir_fd=aside)
                with suppress(OSError):
                    os.utime(name, dir_fd=aside, follow_symlinks=False)  # its age counts from now
                    os.unlink(digest + _USES, dir_fd=shard)
        except FileNotFoundError:
            return None
        except StoreError:
            raise
        except OSError as error:
            raise self._failed("set aside", digest, error) from error
        return os.path.join(self.path, "aside", name)

    # ---- uses, holds and eviction

    def record_use(self, digest: str) -> None:
        """Count a use: appended at once when the last was long ago, else with the next one or on close."""
        now = time.monotonic()
        written, pending = self._uses.get(digest, (-USE_INTERVAL, 0))
        if now - written < self.use_interval:
            self._uses[digest] = (written, pending + 1)
            return
        self._uses[digest] = (now, 0)
        self._append_uses(digest, pending + 1)

    def _append_uses(self, digest: str, count: int) -> None:
        """Append one byte for each use; a store that cannot be written keeps none."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with suppress(OSError), self._root() as root, self._shard(root, digest) as shard:
            file = os.open(digest + _USES, flags, 0o600 | os.fstat(root).st_mode & 0o044, dir_fd=shard)
            try:
                if os.fstat(file).st_nlink == 1:  # else somebody gave another file this name
                    os.write(file, b"." * count)
                    _stamp(file)
            finally:
                os.close(file)

    def hold(self, digest: str) -> None:
        """Write the digest to this process's file of holds."""
        if not self._holds.has(digest):
            with suppress(OSError), self._root(create=True) as root:
                self._holds.add(digest, lambda: self._holds_directory(root))

    def release(self, digest: str) -> None:
        """Take the digest back."""
        if self._holds.has(digest):
            self._holds.discard(digest)

    def held(self) -> frozenset[str]:
        """Return the digests that running processes hold, and sweep the files of dead ones."""
        try:
            with self._root() as root, self._opened(root, "holds") as directory:
                return self._holds.of_running_processes(directory)
        except FileNotFoundError:
            return frozenset()

    def evict(self, digests: Iterable[str]) -> list[str]:
        """Remove entries that nobody holds.

        A process holds a digest before it reads it, and no hold is written between the question who holds an entry
        and its removal: what a process got stays for as long as it holds it. On a file system without ``flock`` an
        entry may go in the moment in which another process gets it.
        """
        removed = []
        chosen = list(digests)
        try:
            with self._root() as root, self._made(root, "holds", os.fstat(root).st_mode) as holds:
                for start in range(0, len(chosen), EVICTION_BATCH):
                    with exclusive(holds):
                        held = self._holds.of_running_processes(holds)
                        for digest in chosen[start : start + EVICTION_BATCH]:
                            if digest not in held and self.remove(digest):
                                removed.append(digest)
        except FileNotFoundError:
            return removed
        except StoreError:
            raise
        except OSError as error:
            raise StoreError(f"{self.path} cannot be pruned: {error.strerror or error}.") from error
        return removed

    def sweep(self) -> int:
        """Remove what dead processes left in ``tmp/`` and ``holds/``, and old files in ``aside/``."""
        swept = 0
        with suppress(OSError), self._root() as root:
            with suppress(FileNotFoundError), self._opened(root, "tmp") as tmp:
                swept += sum(_unlink(tmp, name) for name in os.listdir(tmp) if _is_left_behind(tmp, name))
            with suppress(FileNotFoundError), self._opened(root, "aside") as aside:
                swept += sum(_unlink(aside, name) for name in os.listdir(aside) if _age(aside, name) > ASIDE_AGE)
            with suppress(FileNotFoundError), self._opened(root, "holds") as holds:
                self._holds.of_running_processes(holds)
        return swept

    def close(self) -> None:
        """Write the uses that were not written yet, and release every hold of this process."""
        for digest, (_, pending) in list(self._uses.items()):
            if pending:
                self._append_uses(digest, pending)
        self._uses.clear()
        self._holds.close()

    # ---- directories

    @contextmanager
    def _root(self, *, create: bool = False) -> Iterator[int]:
        """Open ROOT, checked. Raises FileNotFoundError, or :class:`StoreRefusedError`."""
        try:
            descriptor = os.open(self.path, _DIRECTORY)
        except FileNotFoundError:
            if not create:
                raise
            os.makedirs(os.path.dirname(self.path), mode=0o755, exist_ok=True)
            with suppress(FileExistsError):
                os.mkdir(self.path, 0o700)
            descriptor = os.open(self.path, _DIRECTORY)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR) and os.path.islink(self.path):
                raise _is_a_link(self.path) from error
            raise
        try:
            self.options.trust.check_directory(os.fstat(descriptor), self.path)
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def _opened(self, root: int, name: str) -> Iterator[int]:
        try:
            descriptor = os.open(name, _DIRECTORY, dir_fd=root)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise StoreRefusedError(f"{self.path}/{name} is not a directory; it is not followed.") from error
            raise
        try:
            self.options.trust.check_directory(os.fstat(descriptor), f"{self.path}/{name}")
            yield descriptor
        finally:
            os.close(descriptor)

    def _shard(self, root: int, digest: str) -> AbstractContextManager[int]:
        return self._opened(root, digest[:2])

    @contextmanager
    def _made(self, root: int, name: str, permissions: int) -> Iterator[int]:
        """Open a directory below ROOT; make it first, with ROOT's permissions."""
        made = False
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=root)
            made = True
        with self._opened(root, name) as descriptor:
            # Not by name: where others can write, the name may be another thing by now.
            if made and os.fstat(descriptor).st_uid == os.geteuid():
                os.fchmod(descriptor, stat.S_IMODE(permissions))
                if self.durable:
                    os.fsync(root)
            yield descriptor

    def _holds_directory(self, root: int) -> int:
        """Return a descriptor that the caller closes."""
        with self._made(root, "holds", os.fstat(root).st_mode) as directory:
            return os.dup(directory)

    def _temporary(self, digest: str) -> str:
        return f"{processes.current().tag}.{next(self._counter)}.{os.urandom(4).hex()}.{digest[:16]}"

    def _where(self, digest: str) -> str:
        return os.path.join(self.path, digest[:2], digest)

    def _failed(self, what: str, digest: str, error: OSError) -> StoreError:
        problem = StoreError(f"{self._where(digest)} could not be {what}: {error.strerror or error}.")
        problem.errno = error.errno
        return problem


class _OpenFile(Blob):
    def __init__(self, file: int, size: int) -> None:
        self._file = file
        self.size = size

    def read(self, start: int, length: int) -> bytes:
        data = os.pread(self._file, length, start)
        if len(data) == length or start + len(data) >= self.size:
            return data
        pieces = [data]
        while data and length > len(data):
            start, length = start + len(data), length - len(data)
            pieces.append(data := os.pread(self._file, length, start))
        return b"".join(pieces)

    def close(self) -> None:
        os.close(self._file)


def _is_a_link(path: str) -> StoreRefusedError:
    return StoreRefusedError(
        f"{path} is a symbolic link; it is not followed, because whoever can change the link chooses what is loaded. "
        f"Use the directory that it points to: {os.path.realpath(path)}."
    )


def _is_shard(name: str) -> bool:
    return len(name) == 2 and all(digit in "0123456789abcdef" for digit in name)


def _write_all(file: int, blob: bytes) -> None:
    view = memoryview(blob)
    while view:
        view = view[os.write(file, view) :]


def _stamp(file: int) -> None:
    """Date an open file: the kernel's own stamp is coarser than the order of uses."""
    now = time.time_ns()
    os.utime(file, ns=(now, now))


def _is_left_behind(directory: int, name: str) -> bool:
    alive = processes.is_alive(name.partition(".")[0])
    return alive is False or (alive is None and _age(directory, name) > FOREIGN_TEMPORARY_AGE)


def _age(directory: int, name: str) -> float:
    try:
        return time.time() - os.stat(name, dir_fd=directory, follow_symlinks=False).st_mtime
    except FileNotFoundError:
        return 0.0


def _unlink(directory: int, name: str) -> bool:
    """Remove a file, or an empty directory that had taken an entry's place; say whether it went."""
    try:
        os.unlink(name, dir_fd=directory)
    except IsADirectoryError:
        with suppress(OSError):
            os.rmdir(name, dir_fd=directory)
            return True
        return False
    except OSError:
        return False
    return True
