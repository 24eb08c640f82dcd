"""Content-addressed caches for compiled programs: keys, stores, locks. Imports no torch.

Names are loaded when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch_neuronx_cache.bounds import Limits
    from torch_neuronx_cache.cache import Cache, Checked, StoreStats, Verdict, hlo_cache, neff_cache
    from torch_neuronx_cache.errors import CacheError, CacheWarning
    from torch_neuronx_cache.events import CacheEvent, Layer, Outcome
    from torch_neuronx_cache.hookspecs import hookimpl
    from torch_neuronx_cache.keys import CacheKey, KeyPart, PartDifference, diff, neff_key
    from torch_neuronx_cache.settings import Settings
    from torch_neuronx_cache.signing import Signer
    from torch_neuronx_cache.stores.interface import Store, StoredBlob, StoreOptions
    from torch_neuronx_cache.stores.registry import open_store
    from torch_neuronx_cache.trust import Trust
    from torch_neuronx_cache.why import Explanation

_HOMES = {
    "Cache": "cache",
    "CacheError": "errors",
    "CacheEvent": "events",
    "CacheKey": "keys",
    "CacheWarning": "errors",
    "Checked": "cache",
    "Explanation": "why",
    "KeyPart": "keys",
    "Layer": "events",
    "Limits": "bounds",
    "Outcome": "events",
    "PartDifference": "keys",
    "Settings": "settings",
    "Signer": "signing",
    "Store": "stores.interface",
    "StoreOptions": "stores.interface",
    "StoreStats": "cache",
    "StoredBlob": "stores.interface",
    "Trust": "trust",
    "Verdict": "cache",
    "diff": "keys",
    "hlo_cache": "cache",
    "hookimpl": "hookspecs",
    "neff_cache": "cache",
    "neff_key": "keys",
    "open_store": "stores.registry",
}

__all__ = [
    "Cache",
    "CacheError",
    "CacheEvent",
    "CacheKey",
    "CacheWarning",
    "Checked",
    "Explanation",
    "KeyPart",
    "Layer",
    "Limits",
    "Outcome",
    "PartDifference",
    "Settings",
    "Signer",
    "Store",
    "StoreOptions",
    "StoreStats",
    "StoredBlob",
    "Trust",
    "Verdict",
    "diff",
    "hlo_cache",
    "hookimpl",
    "neff_cache",
    "neff_key",
    "open_store",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
