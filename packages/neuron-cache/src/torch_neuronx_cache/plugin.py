"""What the core's plugin manager loads: the hooks of the cache, and the cache for whoever compiles.

Imports nothing but the markers until a hook is called.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from torch_neuronx_cache.cache import Cache
    from torch_neuronx_cache.events import CacheEvent

hookimpl = pluggy.HookimplMarker("torch_neuronx")


@hookimpl
def torch_neuronx_add_hookspecs() -> object:
    """Add the hooks of the cache to the project's."""
    from torch_neuronx_cache import hookspecs

    return hookspecs


@hookimpl
def torch_neuronx_open_cache(kind: str, observer: "Callable[[CacheEvent], object] | None") -> "Cache | None":
    """Open the NEFF or the HLO cache that the environment configures."""
    from torch_neuronx_cache.cache import hlo_cache, neff_cache

    openers = {"neff": neff_cache, "hlo": hlo_cache}
    if kind not in openers:
        return None
    return openers[kind](observers=(observer,) if observer else ())
