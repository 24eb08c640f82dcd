"""Programs that this process has compiled or loaded, by content: equal graphs share one executable."""

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TypeVar

from torch_neuronx import config, plugins
from torch_neuronx.events import CacheLayer, CacheLookedUp
from torch_neuronx.runtimes.interface import Executable, Runtime
from torch_neuronx_compile.artifacts import Stage, keep
from torch_neuronx_compile.compilers.compile import compile_program
from torch_neuronx_compile.compilers.neff_store import find_or_compile
from torch_neuronx_compile.compilers.select import Toolchain
from torch_neuronx_compile.unit import LoweredProgram

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a NEFF came from."""

    found_in: CacheLayer | None
    """``None``: it was compiled."""
    neff_bytes: int
    compile_us: int = 0
    """Microseconds that the compiler took; 0 where it did not run."""


KEPT = 256
"""How many programs are kept of each kind; graphs that run hold theirs whatever is kept here."""

Value = TypeVar("Value")


class _Recent(OrderedDict[Key, Value]):
    """What was used last: programs take memory of the device, and nobody says when one is no longer needed."""

    def find(self, key: Key) -> Value | None:
        found = self.get(key)
        if found is not None:
            self.move_to_end(key)
        return found

    def keep(self, key: Key, value: Value) -> Value:
        """Keep ``value`` unless something is kept under ``key``; return what is kept."""
        kept = self.setdefault(key, value)
        self.move_to_end(key)
        if len(self) > KEPT:
            self.popitem(last=False)
        return kept


_lock = threading.Lock()
_loaded: _Recent[Executable] = _Recent()
_neffs: _Recent[bytes] = _Recent()
"""NEFFs of loaded programs: what a saved graph takes along."""
_built: _Recent[bytes] = _Recent()
"""NEFFs that were compiled and not loaded."""
_brought: _Recent[bytes] = _Recent()
"""NEFFs that came with saved graphs and were not loaded yet."""


def load(lowered: LoweredProgram, tools: Toolchain, runtime: Runtime, core: int) -> tuple[Executable, Origin]:
    """Return the executable of ``lowered`` on device index ``core``, compiled with ``tools`` if need be.

    Raises :class:`GraphCompilationError` or what the runtime raises.
    """
    of_program = tools.key(lowered.key)
    key = (*of_program, str(core))
    fresh = config.get(config.NEFF_DISABLE_CACHE)
    with _lock:
        found = None if fresh else _loaded.find(key)
        neff = _neffs.find(of_program)
    if not fresh:
        plugins.notify(CacheLookedUp(lowered.key, CacheLayer.MEMORY, found is not None, 0.0))
    if found is not None:
        return found, Origin(CacheLayer.MEMORY, 0 if neff is None else len(neff))
    neff, origin = _make(lowered, tools)
    executable = runtime.load(neff, core)
    with _lock:
        _neffs.keep(of_program, neff)
        return executable if fresh else _loaded.keep(key, executable), origin


def build(lowered: LoweredProgram, tools: Toolchain) -> Origin:
    """Compile ``lowered`` with ``tools`` without loading it; raises :class:`GraphCompilationError`."""
    key = tools.key(lowered.key)
    with _lock:
        found = _built.find(key)
    plugins.notify(CacheLookedUp(lowered.key, CacheLayer.MEMORY, found is not None, 0.0))
    if found is not None:
        return Origin(CacheLayer.MEMORY, len(found))
    neff, origin = _make(lowered, tools)
    with _lock:
        _built.keep(key, neff)
    return origin


def neff_of(lowered: LoweredProgram, tools: Toolchain) -> bytes | None:
    """Return the NEFF of a program that this process has loaded or built with ``tools``."""
    key = tools.key(lowered.key)
    with _lock:
        return _neffs.get(key) or _built.get(key)


def bring(lowered: LoweredProgram, tools: Toolchain, neff: bytes) -> None:
    """Have the next :func:`load` of ``lowered`` with ``tools`` take ``neff``, which came with a saved graph."""
    with _lock:
        _brought.keep(tools.key(lowered.key), neff)


def _make(lowered: LoweredProgram, tools: Toolchain) -> tuple[bytes, Origin]:
    key = tools.key(lowered.key)
    with _lock:
        built, brought = _built.pop(key, None), _brought.pop(key, None)
        if built is None and not config.get(config.NEFF_DISABLE_CACHE):
            built = _neffs.get(key)  # loaded on another core
    if brought is not None:
        return brought, Origin(CacheLayer.TRACED, len(brought))
    if built is not None:
        return built, Origin(CacheLayer.MEMORY, len(built))
    spent = 0

    def compile_now() -> bytes:
        nonlocal spent
        start = time.perf_counter()
        neff = compile_program(lowered, tools).neff
        spent = max(1, round((time.perf_counter() - start) * 1e6))
        return neff

    neff, made = find_or_compile(lowered, tools, compile_now)
    keep(Stage.NEFF, lowered.unit.name, lambda: neff)
    return neff, Origin(None if made else CacheLayer.PERSISTENT, len(neff), spent)
