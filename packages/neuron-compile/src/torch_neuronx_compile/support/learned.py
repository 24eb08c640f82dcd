"""Calls that were seen not to lower, remembered on disk: another process breaks there without trying.

One JSON file per fingerprint in the local cache directory, readable and writable by its owner only. A file that
somebody else could have written, or that is damaged, is ignored with a warning: the worst that it could do is to keep
calls out of graphs.
"""

import contextlib
import hashlib
import json
import os
import stat
import tempfile
import threading
import warnings
from functools import lru_cache
from pathlib import Path

from torch_neuronx import config, plugins
from torch_neuronx_compile.support.table import dispatcher_name, fingerprint

_lock = threading.Lock()
_files: dict[Path, dict[str, str]] = {}
"""What each file held when it was read, and what was learned since."""


def reason_for(call: str) -> str | None:
    """Return why ``call`` is known not to lower, or ``None``."""
    return _calls(_path()).get(call)


def anything() -> bool:
    """Return whether anything was learned."""
    return bool(_calls(_path()))


def learn(call: str, reason: str) -> bool:
    """Remember that ``call`` does not lower; return whether that is news."""
    path = _path()
    calls = _calls(path)
    with _lock:
        if call in calls:
            return False
        calls[call] = reason
        content = json.dumps({"calls": calls}, indent=0, sort_keys=True)
    try:
        _write(path, content)
    except OSError as error:
        warnings.warn(
            f"{path} could not be written ({error}); what does not lower is found out again by the next process. Set "
            f"{config.NEFF_LOCAL_CACHE_DIR.name} to a folder that can be written.",
            stacklevel=2,
        )
    return True


def _path() -> Path:
    directory: Path = config.get(config.NEFF_LOCAL_CACHE_DIR)
    return directory / f"lowering-{_state(plugins.manager().generation)[:24]}.json"


@lru_cache(maxsize=1)  # asked for every operator that Dynamo traces
def _state(generation: int) -> str:
    """Extend the fingerprint by what plugins decide."""
    manager = plugins.manager()
    lowerings = [f"{name} {lowering.fingerprint}" for name, lowering in manager.lowerings().items()]
    lowerings += [f"{name} {expansion.fingerprint}" for name, expansion in manager.expansions().items()]
    decomposed = [
        f"{dispatcher_name(op)} {getattr(function, '__module__', '')}.{getattr(function, '__qualname__', '')}"
        for op, function in manager.decompositions().items()
    ]
    parts = (fingerprint(), *sorted(lowerings), *sorted(decomposed))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _calls(path: Path) -> dict[str, str]:
    with _lock:
        if path not in _files:
            _files[path] = _read(path)
        return _files[path]


def _read(path: Path) -> dict[str, str]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return {}
    except OSError as error:
        return _ignore(path, str(error))
    with os.fdopen(descriptor, encoding="utf-8") as file:
        status = os.fstat(file.fileno())
        if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return _ignore(path, "somebody else may write to it")
        try:
            calls = json.load(file)["calls"]
            if not all(isinstance(text, str) for item in calls.items() for text in item):
                raise TypeError("a call or a reason is no text")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            return _ignore(path, f"{type(error).__name__}: {error}")
    return dict(calls)


def _ignore(path: Path, why: str) -> dict[str, str]:
    warnings.warn(f"{path} is ignored: {why}. Remove it to have it made anew.", stacklevel=4)
    return {}


def _write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-")  # made with mode 0600
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(content)
        os.replace(name, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
