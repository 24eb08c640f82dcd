"""The conformance suite that every store runs, ours and strangers'.

In a test file of the store's own package::

    from torch_neuronx_cache.testing import StoreConformance

    class TestVaultStore(StoreConformance):
        @pytest.fixture
        def open_store(self, tmp_path):
            return lambda: VaultStore(f"vault://{tmp_path}", StoreOptions())

``open_store`` returns a function that opens the same, at first empty, place each time it is called, as another process
would. pytest is needed to run the suite, and nothing else.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from blake3 import blake3

from torch_neuronx_cache.cache import Cache
from torch_neuronx_cache.keys import CacheKey
from torch_neuronx_cache.notices import forget
from torch_neuronx_cache.stores.interface import Store

OpenStore = Callable[[], Store]


def digest_of(number: int) -> str:
    """Return one of a sequence of digests."""
    return blake3(number.to_bytes(8, "little")).hexdigest()


class StoreConformance:
    """Derive, and give the fixture ``open_store``."""

    def test_a_blob_is_read_back_whole_by_another_opening(self, open_store: OpenStore) -> None:
        """Bytes of every value and of many sizes survive."""
        store = open_store()
        blobs = {digest_of(size): os.urandom(size) for size in (1, 255, 4096, 200_000, 3_000_000)}
        blobs[digest_of(256)] = bytes(range(256))
        for digest, blob in blobs.items():
            store.write(digest, blob)
        again = open_store()
        assert {digest: again.read(digest) for digest in blobs} == blobs

    def test_what_was_never_written_is_not_there(self, open_store: OpenStore) -> None:
        """A missing blob is None, not an error, in an empty store and in one that has others."""
        store = open_store()
        assert store.read(digest_of(0)) is None
        assert store.open(digest_of(0)) is None
        assert store.remove(digest_of(0)) is False
        assert list(store.scan()) == []
        store.write(digest_of(1), b"x")
        assert store.read(digest_of(0)) is None

    def test_parts_can_be_read(self, open_store: OpenStore) -> None:
        """An open blob knows its size and gives any part of itself."""
        store = open_store()
        data = os.urandom(10_000)
        store.write(digest_of(0), data)
        blob = store.open(digest_of(0))
        assert blob is not None
        with blob:
            assert blob.size == len(data)
            assert blob.read(0, 10) == data[:10]
            assert blob.read(9_000, 1_000) == data[9_000:]
            assert blob.read(9_990, 100) == data[9_990:]
            assert blob.read(20_000, 10) == b""

    def test_the_last_write_wins(self, open_store: OpenStore) -> None:
        """Writing again replaces, also with something shorter."""
        store = open_store()
        store.write(digest_of(0), b"a long first blob")
        store.write(digest_of(0), b"second")
        assert open_store().read(digest_of(0)) == b"second"
        assert len(list(store.scan())) == 1

    def test_removing_removes(self, open_store: OpenStore) -> None:
        """A removed blob is gone for everybody, and its digest can be written again."""
        store = open_store()
        store.write(digest_of(0), b"x")
        assert store.remove(digest_of(0)) is True
        assert store.remove(digest_of(0)) is False
        assert open_store().read(digest_of(0)) is None
        store.write(digest_of(0), b"y")
        assert store.read(digest_of(0)) == b"y"

    def test_the_listing_is_complete(self, open_store: OpenStore) -> None:
        """Every blob once, with its size and sensible times."""
        store = open_store()
        sizes = {digest_of(number): number + 1 for number in range(50)}
        for digest, size in sizes.items():
            store.write(digest, bytes(size))
        listed = list(open_store().scan())
        assert {blob.digest: blob.size for blob in listed} == sizes
        assert len(listed) == len(sizes)
        assert all(0 < blob.created <= blob.used for blob in listed)

    def test_a_bad_blob_can_be_set_aside(self, open_store: OpenStore) -> None:
        """After that it is not there, and a good one can take its place."""
        store = open_store()
        store.write(digest_of(0), b"bad")
        store.set_aside(digest_of(0), "test")
        store.set_aside(digest_of(0), "nothing is there any more")
        assert store.read(digest_of(0)) is None
        assert list(store.scan()) == []
        store.write(digest_of(0), b"good")
        assert store.read(digest_of(0)) == b"good"

    def test_eviction_spares_what_is_held(self, open_store: OpenStore) -> None:
        """A store that keeps holds honours those of every opening; one that keeps none evicts all."""
        holder, evictor = open_store(), open_store()
        digests = [digest_of(number) for number in range(6)]
        for digest in digests:
            holder.write(digest, b"x")
        holder.hold(digests[0])
        holder.hold(digests[1])
        holder.release(digests[1])
        removed = evictor.evict([*digests, digest_of(99)])
        left = {blob.digest for blob in evictor.scan()}
        assert set(removed) | left == set(digests)
        assert not set(removed) & left
        if type(holder).hold is not Store.hold:
            assert left == {digests[0]}
        holder.close()
        evictor.evict(digests)
        assert list(evictor.scan()) == []

    def test_uses_are_counted_or_ignored(self, open_store: OpenStore) -> None:
        """Recording a use never raises and never makes a blob look older or smaller."""
        store = open_store()
        store.write(digest_of(0), b"x")
        (before,) = store.scan()
        store.record_use(digest_of(0))
        store.record_use(digest_of(1))
        (after,) = store.scan()
        assert after.used >= before.used
        assert after.hits >= before.hits
        assert after.size == before.size

    def test_a_reader_never_sees_part_of_a_write(self, open_store: OpenStore) -> None:
        """While writers replace one blob by others of different lengths, every read is one of them, whole."""
        blobs = [bytes([number]) * (1_000 + 37_000 * number) for number in range(4)]
        store = open_store()
        store.write(digest_of(0), blobs[0])
        stop = threading.Event()

        def write() -> None:
            own = open_store()
            while not stop.is_set():
                for blob in blobs:
                    own.write(digest_of(0), blob)

        with ThreadPoolExecutor() as pool:
            writers = [pool.submit(write) for _ in range(2)]
            try:
                for _ in range(200):
                    assert store.read(digest_of(0)) in blobs
            finally:
                stop.set()
            for writer in writers:
                writer.result()

    def test_many_threads_may_use_one_store(self, open_store: OpenStore) -> None:
        """Writes, reads and removals of different digests do not disturb each other."""
        store = open_store()

        def work(number: int) -> None:
            digest, blob = digest_of(number), os.urandom(5_000)
            store.write(digest, blob)
            assert store.read(digest) == blob
            if number % 2:
                assert store.remove(digest)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(64)))
        assert {blob.digest for blob in store.scan()} == {digest_of(number) for number in range(0, 64, 2)}

    def test_closing_is_not_the_end(self, open_store: OpenStore) -> None:
        """A closed store can be used again; sweeping a healthy one loses nothing."""
        store = open_store()
        store.write(digest_of(0), b"x")
        store.close()
        store.close()
        store.sweep()
        assert store.read(digest_of(0)) == b"x"

    def test_a_cache_works_over_it(self, open_store: OpenStore) -> None:
        """Made once, found by another opening, damaged, found out, made again."""
        forget()
        key = CacheKey.of("neff", {"stablehlo": b"module {}", "compiler": "test"})
        first, second = Cache(open_store(), memory_bytes=0), Cache(open_store(), memory_bytes=0)
        assert first.get(key) is None
        assert first.get_or_create(key, lambda: b"content", {"graph": "g"}) == b"content"
        assert second.get(key) == b"content"
        assert [header.labels for _, header in second.headers()] == [{"graph": "g"}]
        blob = open_store().read(key.digest)
        assert blob is not None
        open_store().write(key.digest, blob[:-1] + b"?")
        with pytest.warns(UserWarning, match="is damaged"):
            assert second.get_or_create(key, lambda: b"again") == b"again"
        assert first.get(key) == b"again"
        assert [checked.verdict for checked in first.verify()] == ["good"]
        first.close()
        second.close()
