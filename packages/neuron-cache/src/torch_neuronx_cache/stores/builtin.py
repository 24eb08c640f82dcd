"""The stores that come with the package, offered through the hook like anybody's."""

from collections.abc import Mapping
from importlib.util import find_spec
from urllib.parse import unquote

from torch_neuronx_cache.errors import CacheConfigurationError, UnknownSchemeError
from torch_neuronx_cache.hookspecs import StoreFactory, hookimpl
from torch_neuronx_cache.stores.interface import Store, StoreOptions

FSSPEC_SCHEMES = {
    "memory": "fsspec",
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "az": "adlfs",
    "abfs": "adlfs",
    "abfss": "adlfs",
    "oss": "ossfs",
    "sftp": "fsspec paramiko",
    "ssh": "fsspec paramiko",
    "smb": "fsspec smbprotocol",
    "hdfs": "fsspec pyarrow",
    "webdav": "webdav4",
}
"""File systems of fsspec's that can keep a store, and what to install for each."""


@hookimpl
def torch_neuronx_cache_stores() -> Mapping[str, StoreFactory]:
    """Offer ``file://``, ``redis://`` and the file systems of fsspec's."""
    return {
        "file": open_file_store,
        "redis": open_redis_store,
        "rediss": open_redis_store,
        **dict.fromkeys(FSSPEC_SCHEMES, open_fsspec_store),
    }


def open_redis_store(url: str, options: StoreOptions) -> Store:
    """Open a Redis or Valkey server. Raises :class:`UnknownSchemeError` where its client is not installed."""
    from torch_neuronx_cache.stores.redis_store import RedisStore

    if find_spec("redis") is None:
        raise UnknownSchemeError(f"The cache store {url} needs a package that is not installed: pip install redis")
    return RedisStore(url, options)


def open_fsspec_store(url: str, options: StoreOptions) -> Store:
    """Open a place on a file system of fsspec's. Raises :class:`UnknownSchemeError` with what to install for it."""
    from torch_neuronx_cache.stores.fsspec_store import FsspecStore

    scheme = url.partition("://")[0].lower()
    try:
        from fsspec import get_filesystem_class  # type: ignore[import-untyped, import-not-found, unused-ignore]

        get_filesystem_class(scheme)
    except ImportError as error:
        raise UnknownSchemeError(
            f"The cache store {url} needs a package that is not installed: pip install {FSSPEC_SCHEMES[scheme]}"
        ) from error
    return FsspecStore(url, options)


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
