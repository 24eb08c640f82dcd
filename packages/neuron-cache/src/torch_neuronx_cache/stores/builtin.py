"""The stores that come with the package, offered through the hook like anybody's."""

from collections.abc import Mapping
from urllib.parse import unquote

from torch_neuronx_cache.errors import CacheConfigurationError
from torch_neuronx_cache.hookspecs import StoreFactory, hookimpl
from torch_neuronx_cache.stores.interface import Store, StoreOptions


@hookimpl
def torch_neuronx_cache_stores() -> Mapping[str, StoreFactory]:
    """Offer ``file://``."""
    return {"file": open_file_store}


def open_file_store(url: str, options: StoreOptions) -> Store:
    """Open a directory, given as ``file:///path`` or as a plain path."""
    from torch_neuronx_cache.stores.file import FileStore

    scheme, separator, rest = url.partition("://")
    if not separator or scheme.lower() != "file":
        return FileStore(url, options)
    host, slash, path = rest.partition("/")
    if host not in ("", "localhost") or not slash:
        raise CacheConfigurationError(f"{url} names the host {host!r}. Write file:///absolute/path.")
    return FileStore("/" + unquote(path), options)
