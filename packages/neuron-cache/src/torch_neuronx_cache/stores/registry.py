"""From a URL to a store, through the hook that strangers use too."""

import os
import warnings
from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import cast

import pluggy

from torch_neuronx_cache import hookspecs
from torch_neuronx_cache.errors import CacheWarning, UnknownSchemeError
from torch_neuronx_cache.stores.interface import Store, StoreOptions

DISABLE_VARIABLE = "TORCH_NEURONX_DISABLE_PLUGINS"


@cache
def plugin_manager() -> pluggy.PluginManager:
    """Return the manager with the built-in stores and every installed plugin, loaded on first use.

    A plugin that fails to load is named in one warning and left out, as are, in silence, those that
    ``TORCH_NEURONX_DISABLE_PLUGINS`` names by entry point or by distribution (``all`` for all).
    """
    from torch_neuronx_cache.stores import builtin

    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    manager.register(builtin, "builtin-stores")
    disabled = {name.strip() for name in os.environ.get(DISABLE_VARIABLE, "").split(",")}
    for point in entry_points(group=hookspecs.GROUP):
        if disabled & {"all", point.name, point.dist.name if point.dist else point.name}:
            continue
        try:
            manager.register(point.load(), point.name)
            manager.check_pending()
        except Exception as error:
            if manager.has_plugin(point.name):
                manager.unregister(name=point.name)
            warnings.warn(
                f"The cache plugin {point.name!r} ({point.value}) could not be loaded and is left out: {error!r}. "
                f"Repair or uninstall it, or name it in {DISABLE_VARIABLE}.",
                CacheWarning,
                stacklevel=2,
            )
    return manager


def split_scheme(url: str) -> tuple[str, str]:
    """Return the scheme and the rest; a plain path has the scheme ``file``."""
    scheme, separator, rest = url.partition("://")
    return (scheme.lower(), rest) if separator and scheme.replace("+", "").isalnum() else ("file", url)


def open_store(url: str, options: StoreOptions | None = None) -> Store:
    """Open the store at a URL or a path.

    Raises :class:`UnknownSchemeError` when no plugin, or more than one, serves the scheme.
    """
    scheme, _ = split_scheme(url)
    manager = plugin_manager()
    offers: list[tuple[str, hookspecs.StoreFactory]] = []
    for implementation in manager.hook.torch_neuronx_cache_stores.get_hookimpls():
        schemes = cast("Mapping[str, hookspecs.StoreFactory]", implementation.function())
        if scheme in schemes:
            offers.append((implementation.plugin_name, schemes[scheme]))
    if not offers:
        known = sorted({name for stores in manager.hook.torch_neuronx_cache_stores() for name in stores})
        raise UnknownSchemeError(
            f"No installed package offers a cache store for {scheme}://. Known schemes: {', '.join(known)}. "
            f"Install one that does; stores are found through the entry-point group {hookspecs.GROUP}."
        )
    if len(offers) > 1:
        names = " and ".join(repr(name) for name, _ in offers)
        raise UnknownSchemeError(
            f"The plugins {names} both offer a cache store for {scheme}://. "
            f"Name the one to leave out in {DISABLE_VARIABLE}."
        )
    return offers[0][1](url, options or StoreOptions())
