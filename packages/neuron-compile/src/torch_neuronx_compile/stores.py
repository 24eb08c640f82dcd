"""What other processes made: the persistent stores, found by hook. Without one nothing is kept on disk."""

import os
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Protocol

from torch_neuronx import config, plugins
from torch_neuronx.events import CacheLayer, CacheLookedUp, CacheTrouble, CacheTroubled


class Store(Protocol):
    """What is asked of the object that the hook ``torch_neuronx_open_cache`` returns."""

    def key(self, kind: str, parts: Mapping[str, Any]) -> Any:
        """Build a key of named parts."""

    def get_or_create(self, key: Any, make: Callable[[], bytes], labels: Mapping[str, str] | None = None) -> bytes:
        """Return the bytes of a key, making and keeping them when there are none."""


_LAYERS = {"neff": CacheLayer.PERSISTENT, "hlo": CacheLayer.LOWERED}
"""How a look-up in the store of each kind is told."""

_VARIABLES = tuple(
    name
    for variable in config.VARIABLES.values()
    if variable.kind is config.Kind.CACHING
    for name in (variable.name, *variable.aliases)
)
"""What a store is opened with; another value opens another one."""


def find_or_make(
    kind: str, parts: Mapping[str, Any], make: Callable[[], bytes], labels: Mapping[str, str]
) -> tuple[bytes, bool]:
    """Return the bytes that belong to ``parts`` in the store of ``kind``, and whether ``make`` had to make them.

    Of several processes that want them at once, one makes them. Raises what ``make`` raises; nothing is kept then.
    """
    store = _open(kind, *(os.environ.get(name) for name in _VARIABLES))
    if store is None:
        return make(), True
    made = False

    def make_and_tell() -> bytes:
        nonlocal made
        made = True
        return make()

    return store.get_or_create(store.key(kind, parts), make_and_tell, labels), made


@lru_cache(maxsize=8)
def _open(kind: str, *settings: str | None) -> Store | None:
    layer = _LAYERS[kind]
    store: Store | None = plugins.manager().call_first(
        "torch_neuronx_open_cache", kind=kind, observer=lambda event: _tell(layer, event)
    )
    return store


def _tell(layer: CacheLayer, event: Any) -> None:
    if event.outcome in ("hit", "miss"):
        plugins.notify(CacheLookedUp(event.key, layer, event.outcome == "hit", event.seconds))
    elif event.outcome in tuple(CacheTrouble):
        plugins.notify(CacheTroubled(event.key, CacheTrouble(event.outcome), event.detail))
