"""Which process wrote a file, and whether it still runs: without locks, from the name it left behind."""

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from blake3 import blake3


@dataclass(frozen=True, slots=True)
class Process:
    """A process, told apart from a later one with the same number."""

    host: str
    machine: str
    """12 hexadecimal digits for this boot of this host and its process-number namespace."""
    pid: int
    started: int
    """Clock ticks from boot to its start; 0 where the system does not tell."""
    uid: int

    @property
    def tag(self) -> str:
        """Name this process in a file name: ``machine-pid-started``."""
        return f"{self.machine}-{self.pid}-{self.started}"


def current() -> Process:
    """Return the calling process. A forked child gets its own."""
    global _current
    pid = os.getpid()
    if _current is None or _current.pid != pid:
        _current = Process(os.uname().nodename, _machine(), pid, _started(pid) or 0, os.geteuid())
    return _current


def is_alive(tag: str) -> bool | None:
    """Say whether the process with that :attr:`Process.tag` runs; ``None`` when this host cannot know."""
    machine, _, rest = tag.partition("-")
    pid_text, _, started_text = rest.partition("-")
    if machine != _machine() or not (pid_text.isdecimal() and started_text.isdecimal()):
        return None
    pid, started = int(pid_text), int(started_text)
    now_started = _started(pid)
    if now_started is not None:
        return now_started == started
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # another user's, and /proc hides it
    return not started  # with /proc, a process without a start time is a zombie and holds nothing any more


@cache
def _machine() -> str:
    """Containers on one host share a boot but not process numbers, hence the namespace."""
    boot = _read("/proc/sys/kernel/random/boot_id").strip()
    try:
        namespace = str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        namespace = ""
    return blake3("\0".join((os.uname().nodename, boot, namespace)).encode()).hexdigest()[:12]


def _started(pid: int) -> int | None:
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    if len(fields) < 20 or fields[0] in "ZX":
        return None
    return int(fields[19])


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


_current: Process | None = None
