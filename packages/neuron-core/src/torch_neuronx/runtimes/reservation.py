"""One process per emulated core: a lock file each, which the kernel frees when its holder ends, however it ends."""

import os
import stat
import tempfile
from pathlib import Path

from filelock import FileLock, Timeout

from torch_neuronx import config
from torch_neuronx.errors import CoreBusyError
from torch_neuronx.targets import LogicalCore

_held: dict[int, FileLock] = {}
"""Locks of this process, by physical core."""


def reserve(cores: tuple[LogicalCore, ...]) -> None:
    """Take ``cores`` for this process until it ends; taking one again changes nothing.

    Raises :class:`CoreBusyError` if another process of this user has one; then none is taken.
    """
    folder = runtime_directory()
    taken: list[int] = []
    for core in cores:
        for physical in core.physical:
            if physical in _held:
                continue
            lock = FileLock(folder / f"core-{physical}.lock", mode=0o600, thread_local=False)
            try:
                lock.acquire(blocking=False)
            except Timeout:
                release(taken)
                raise CoreBusyError(_busy(core, _note(folder, physical))) from None
            _held[physical] = lock
            taken.append(physical)
            _note(folder, physical).write_text(str(os.getpid()), encoding="ascii")


def release(physical: list[int] | None = None) -> None:
    """Let cores go: those with these physical numbers, or all of this process."""
    for number in list(_held) if physical is None else physical:
        _held.pop(number).release()


def runtime_directory() -> Path:
    """Return this user's directory for what lives no longer than processes; make it where it is not there.

    Raises PermissionError if somebody else could write to it.
    """
    base = os.environ.get("XDG_RUNTIME_DIR")
    folder = Path(base) / "torch-neuronx" if base else Path(tempfile.gettempdir()) / f"torch-neuronx-{os.getuid()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise PermissionError(
            f"{folder} is not a directory that only user {os.getuid()} writes to. Remove it, or point XDG_RUNTIME_DIR "
            "to a directory of your own."
        )
    return folder


def _note(folder: Path, physical: int) -> Path:
    return folder / f"core-{physical}.pid"


def _busy(core: LogicalCore, note: Path) -> str:
    try:
        holder = f"process {note.read_text(encoding='ascii')}"
    except FileNotFoundError:  # the holder has the lock and has not written its note yet
        holder = "another process"
    return (
        f"Neuron core {core.index} is held by {holder}. Wait until it ends, show this process other cores with "
        f"{config.RT_VISIBLE_CORES.name}, or set {config.EMULATOR_RELAXED.name}=1 to share cores on the emulator."
    )
