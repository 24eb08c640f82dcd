"""Offers the scheme ``sqlite://``; the store is imported when one is opened."""

from collections.abc import Callable, Mapping
from typing import Any

import pluggy

hookimpl = pluggy.HookimplMarker("torch_neuronx")


@hookimpl
def torch_neuronx_cache_stores() -> Mapping[str, Callable[[str, Any], Any]]:
    """Offer the store."""
    return {"sqlite": open_store}


def open_store(url: str, options: Any) -> Any:
    """Open the file that the URL names."""
    from neuron_sqlite_store.store import SqliteStore

    return SqliteStore(url, options)
