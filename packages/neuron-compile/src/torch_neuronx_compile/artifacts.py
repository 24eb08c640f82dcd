"""Files about graphs, under the debug directory, and their removal when the program ends.

They are written where the user names a directory or wants them kept, one file per stage and graph::

    fx_graphs/proc_<rank>/<graph>_<time>.fx.txt          raw/proc_<rank>/<graph>_<time>.torch_raw.mlir
    stablehlo/proc_<rank>/<graph>_<time>.stablehlo.mlir  neff/proc_<rank>/<graph>_<time>.neff
    failed/proc_<rank>/<graph>_<time>/                   of a graph that did not compile: written always, kept always
"""

import atexit
import contextlib
import os
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path

from torch_neuronx import config
from torch_neuronx.logs import logger
from torch_neuronx_compile.naming import get_rank


class Stage(Enum):
    """What a file shows: its folder and the end of its name."""

    FX = ("fx_graphs", ".fx.txt")
    TORCH = ("raw", ".torch_raw.mlir")
    STABLEHLO = ("stablehlo", ".stablehlo.mlir")
    NEFF = ("neff", ".neff")


class _Process:
    """What one process has written."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lock = threading.Lock()
        self.stems: dict[str, str] = {}
        self.files: list[Path] = []
        """To be removed at exit."""
        self.folders: list[Path] = []
        """Made here, outer ones first; removed at exit where they are empty."""
        self.warned: set[Path] = set()


_process = _Process()


def wanted() -> bool:
    """Return whether files are written for graphs that compile."""
    return config.get(config.PRESERVE_COMPILATION_ARTIFACTS) or (
        config.source(config.DEBUG_DIR) is config.Source.ENVIRONMENT
    )


def keep(stage: Stage, graph: str, content: Callable[[], str | bytes]) -> None:
    """Write what ``content`` returns, if artifacts are wanted; a directory that cannot be written warns once."""
    if not wanted():
        return
    folder, ending = stage.value
    made = content()
    data = made.encode() if isinstance(made, str) else made
    process = _current()
    with process.lock:
        try:
            path = _write(process, _folder(process, folder), _stem(process, graph), ending, data)
        except OSError as error:
            _warn(process, error)
            return
        if not config.get(config.PRESERVE_COMPILATION_ARTIFACTS):
            process.files.append(path)


def keep_failure(graph: str, files: Mapping[str, str]) -> Path | None:
    """Write what is known about a graph that failed and return the folder, or ``None`` where it cannot be written."""
    process = _current()
    with process.lock:
        try:
            folder = _folder(process, "failed", _stem(process, graph))
            for name, text in files.items():
                (folder / name).write_text(text, encoding="utf-8")
        except OSError as error:
            _warn(process, error)
            return None
    return folder


def _current() -> _Process:
    global _process
    if _process.pid != os.getpid():  # a forked child leaves the parent's files to the parent
        _process = _Process()
    return _process


def _stem(process: _Process, graph: str) -> str:
    """Return one name for all files of a graph."""
    return process.stems.setdefault(graph, f"{graph}_{datetime.now(UTC):%Y%m%dT%H%M%S%f}")


def _folder(process: _Process, kind: str, *inner: str) -> Path:
    root = config.get(config.DEBUG_DIR)
    root.parent.mkdir(parents=True, exist_ok=True)
    if not process.folders:
        atexit.register(_remove, process)
    folder = root
    for part in ("", kind, f"proc_{get_rank()}", *inner):
        folder = folder / part
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            if part or config.source(config.DEBUG_DIR) is config.Source.DEFAULT:
                process.folders.append(folder)
    return folder


def _write(process: _Process, folder: Path, stem: str, ending: str, data: bytes) -> Path:
    nth, path = 1, folder / f"{stem}{ending}"
    while path.exists() or path.is_symlink():  # the NEFF of another target, or of another run in the same directory
        nth += 1
        path = folder / f"{stem}-{nth}{ending}"
    with path.open("xb") as file:
        file.write(data)
    return path


def _warn(process: _Process, error: OSError) -> None:
    root = config.get(config.DEBUG_DIR)
    if root not in process.warned:
        process.warned.add(root)
        logger("compile").warning(
            "Compilation artifacts are not written: %s. Compilation goes on. Set %s to a directory that can be "
            "written.",
            error,
            config.DEBUG_DIR.name,
        )


def _remove(process: _Process) -> None:
    """Remove what was written and is not to be kept; a folder goes only if it was made here and is empty."""
    if process.pid != os.getpid():
        return
    for path in process.files:
        path.unlink(missing_ok=True)
    for folder in reversed(process.folders):
        with contextlib.suppress(OSError):
            folder.rmdir()
