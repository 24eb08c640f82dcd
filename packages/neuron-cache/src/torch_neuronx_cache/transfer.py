"""Copies entries from one store to another: what fills a bucket from a build machine, and a machine from a bucket."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from torch_neuronx_cache.cache import Cache
from torch_neuronx_cache.entries import read_entry
from torch_neuronx_cache.errors import InvalidEntryError, StoreRefusedError
from torch_neuronx_cache.stores.interface import Blob


class Transfer(StrEnum):
    """What became of one entry."""

    COPIED = "copied"
    PRESENT = "present"
    """The target has it already: what a resumed copy skips."""
    BAD = "bad"
    """It failed its checks, or is not trusted, and was left out."""


@dataclass(frozen=True, slots=True)
class Transferred:
    """One entry after its turn."""

    digest: str
    result: Transfer
    size: int
    """Bytes."""
    reason: str = ""


def copy(source: Cache, target: Cache) -> tuple[int, Iterator[Transferred]]:
    """Return the number of entries in the source, and their transfers as they happen.

    Every entry is checked before it is written. A copy that is broken off goes on where it was: what the target has in
    the same size is skipped. Raises :class:`~torch_neuronx_cache.errors.StoreError` when a store fails.
    """
    if source.store is None or target.store is None:
        raise ValueError("both caches need a store")
    listed = list(source.store.scan())
    there = {blob.digest: blob.size for blob in target.store.scan()}

    def each() -> Iterator[Transferred]:
        assert source.store is not None
        assert target.store is not None
        for blob in listed:
            if there.get(blob.digest) == blob.size:
                yield Transferred(blob.digest, Transfer.PRESENT, blob.size)
                continue
            try:
                data = source.store.read(blob.digest)
                if data is None:
                    continue
                read_entry(Blob(data), blob.digest, source.signer)
            except (InvalidEntryError, StoreRefusedError) as error:
                yield Transferred(blob.digest, Transfer.BAD, blob.size, str(error))
                continue
            target.store.write(blob.digest, data)
            yield Transferred(blob.digest, Transfer.COPIED, len(data))

    return len(listed), each()
