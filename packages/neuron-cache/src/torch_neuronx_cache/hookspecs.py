"""The hooks of the cache. A store's package names its plugin in the entry-point group ``torch_neuronx_cache.plugins``::

    [project.entry-points."torch_neuronx_cache.plugins"]
    my-store = "my_package.plugin"

The markers need only the project's name, ``torch_neuronx``: a plugin for the cache imports neither torch nor the core.
"""

# mypy: disable-error-code="empty-body"

from collections.abc import Callable, Mapping

import pluggy

from torch_neuronx_cache.events import CacheEvent
from torch_neuronx_cache.stores.interface import Store, StoreOptions

PROJECT = "torch_neuronx"
GROUP = "torch_neuronx_cache.plugins"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks a function as the implementation of the hook of its name."""

StoreFactory = Callable[[str, StoreOptions], Store]
"""Opens the store at a URL."""


@hookspec
def torch_neuronx_cache_stores() -> Mapping[str, StoreFactory]:
    """Offer stores.

    Called when a store is opened. Two plugins that offer one scheme are an error that names both.

    :return: What opens a store, by URL scheme without ``://``.

    Example::

        @hookimpl
        def torch_neuronx_cache_stores():
            return {"vault": lambda url, options: VaultStore(url, options)}
    """


@hookspec
def torch_neuronx_cache_event(event: CacheEvent) -> None:
    """Receive every event of every cache in the process, in the thread in which it happened.

    A slow observer slows the lookup; one that raises is named in one warning, and the work goes on.

    :param event: What happened. New outcomes may be added, so ignore others.

    Example::

        @hookimpl
        def torch_neuronx_cache_event(event):
            counts[event.outcome] += 1
    """


@hookspec(firstresult=True)
def torch_neuronx_open_cache(kind: str, observer: Callable[[CacheEvent], object] | None) -> object | None:
    """Open the cache that a compiler keeps its results in.

    Called by whoever compiles, when it first compiles; without an answer it works unpersisted.

    :param kind: ``neff`` or ``hlo``.
    :param observer: Receives every event of this cache, or ``None``.
    :return: An object with :meth:`Cache.key <torch_neuronx_cache.Cache.key>`, ``get_or_create`` and the other
        methods of :class:`~torch_neuronx_cache.Cache`, or ``None`` to leave the kind to others.

    Example::

        @hookimpl(tryfirst=True)
        def torch_neuronx_open_cache(kind, observer):
            return my_neff_cache if kind == "neff" else None
    """
