"""NEFFs that another process made: the persistent store, found by hook. Without one nothing is kept on disk."""

import os
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Protocol

from torch_neuronx import config, plugins
from torch_neuronx.compilers import HostDependent
from torch_neuronx.events import CacheLayer, CacheLookedUp, CacheTrouble, CacheTroubled
from torch_neuronx_compile.compilers.select import Toolchain
from torch_neuronx_compile.unit import LoweredProgram

KIND = "neff"


class Store(Protocol):
    """What is asked of the object that the hook ``torch_neuronx_open_cache`` returns."""

    def key(self, kind: str, parts: Mapping[str, Any]) -> Any:
        """Build a key of named parts."""

    def get_or_create(self, key: Any, make: Callable[[], bytes], labels: Mapping[str, str] | None = None) -> bytes:
        """Return the bytes of a key, making and keeping them when there are none."""


def find_or_compile(lowered: LoweredProgram, tools: Toolchain, compile_now: Callable[[], bytes]) -> tuple[bytes, bool]:
    """Return the NEFF of ``lowered``, and whether ``compile_now`` had to make it.

    The key has everything that can change the bytes, and neither names nor places: the same model under another name,
    or from another directory, is found. Of several processes that want one program at once, one compiles it.
    """
    store = _store()
    if store is None:
        return compile_now(), True
    made = False

    def make() -> bytes:
        nonlocal made
        made = True
        return compile_now()

    key = store.key(KIND, _parts(lowered, tools))
    return store.get_or_create(key, make, {"graph": lowered.unit.name}), made


def _parts(lowered: LoweredProgram, tools: Toolchain) -> dict[str, Any]:
    compiler, layout = tools.compiler, tools.layout
    parts = {
        "program": lowered.program,
        "kernels": lowered.key,
        "compiler": compiler.name,
        "compiler version": compiler.version(),
        "target": layout.target.name,
        "lnc": layout.lnc,
        "flags": dict(tools.flags),
    }
    return parts | (dict(compiler.host()) if isinstance(compiler, HostDependent) else {})


def _store() -> Store | None:
    return _open(*(os.environ.get(name) for name in _VARIABLES))


_VARIABLES = tuple(
    name
    for variable in config.VARIABLES.values()
    if variable.kind is config.Kind.CACHING
    for name in (variable.name, *variable.aliases)
)
"""What a store is opened with; another value opens another one."""


@lru_cache(maxsize=4)
def _open(*settings: str | None) -> Store | None:
    store: Store | None = plugins.manager().call_first("torch_neuronx_open_cache", kind=KIND, observer=_observe)
    return store


def _observe(event: Any) -> None:
    if event.outcome in ("hit", "miss"):
        plugins.notify(CacheLookedUp(event.key, CacheLayer.PERSISTENT, event.outcome == "hit", event.seconds))
    elif event.outcome in tuple(CacheTrouble):
        plugins.notify(CacheTroubled(event.key, CacheTrouble(event.outcome), event.detail))
