from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from torch_neuronx_cache import Cache, CacheEvent, CacheKey, CacheWarning, Limits, Outcome, Settings, Store, open_store
from torch_neuronx_cache.cli import app
from torch_neuronx_cache.errors import StoreError, UnknownSchemeError
from torch_neuronx_cache.stores import patience
from torch_neuronx_cache.stores.file import FileStore
from torch_neuronx_cache.stores.fsspec_store import FsspecStore
from torch_neuronx_cache.stores.read_through import ReadThroughStore
from torch_neuronx_cache.testing import StoreConformance, digest_of
from torch_neuronx_cache.transfer import Transfer, copy

fsspec = pytest.importorskip("fsspec", reason="needs the remote extra: pip install fsspec")

KeyOf = Callable[..., CacheKey]
URL = "memory://bucket/neff"


@pytest.fixture(autouse=True)
def _quick_and_empty(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(patience, "FIRST_PAUSE", 0.001)
    fsspec.filesystem("memory").store.clear()
    yield
    fsspec.filesystem("memory").store.clear()


class TestMemoryFileSystem(StoreConformance):
    @pytest.fixture
    def open_store(self) -> Callable[[], Store]:
        return lambda: open_store(URL)


class TestFileSystemWithoutWholeObjectWrites(StoreConformance):
    """fsspec's own local file system stands for those (sftp, smb) where a write shows while it happens."""

    @pytest.fixture
    def open_store(self, place: Path) -> Callable[[], Store]:
        return lambda: FsspecStore(f"local://{place}/remote")


class TestReadThrough(StoreConformance):
    @pytest.fixture
    def open_store(self, place: Path) -> Callable[[], Store]:
        numbers = iter(range(1000))
        return lambda: ReadThroughStore(FileStore(place / "layer"), FsspecStore(f"{URL}-{next(numbers) * 0}"))

    def test_eviction_spares_what_is_held(self, open_store: Callable[[], Store]) -> None:
        """Eviction is the local layer's: the remote store keeps all."""
        store = open_store()
        assert isinstance(store, ReadThroughStore)
        store.write(digest_of(0), b"x")
        store.hold(digest_of(0))
        store.write(digest_of(1), b"y")
        assert store.evict([digest_of(0), digest_of(1)]) == [digest_of(1)]
        assert {blob.digest for blob in store.scan()} == {digest_of(0), digest_of(1)}
        assert store.read(digest_of(1)) == b"y"


class Broken:
    """A file system that fails, a number of times or for good."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *names: str, times: int = 10**9) -> None:
        self.calls = 0
        kind = type(fsspec.filesystem("memory"))
        for name in names:
            real = getattr(kind, name)

            def fail(fs: Any, *args: Any, real: Any = real, **kwargs: Any) -> Any:
                self.calls += 1
                if self.calls <= times:
                    raise ConnectionError("no route to host")
                return real(fs, *args, **kwargs)

            monkeypatch.setattr(kind, name, fail)


def test_a_passing_failure_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    store = FsspecStore(URL)
    store.write(digest_of(0), b"x")
    broken = Broken(monkeypatch, "cat_file", times=2)
    assert store.read(digest_of(0)) == b"x"
    assert broken.calls == 3


def test_a_store_that_is_down_is_not_asked_at_every_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    store = FsspecStore(URL)
    broken = Broken(monkeypatch, "cat_file")
    with pytest.raises(StoreError, match=r"tried 3 times.*no route to host"):
        store.read(digest_of(0))
    with pytest.raises(StoreError, match=r"no route to host.*not asked again"):
        store.read(digest_of(1))
    assert broken.calls == 3
    monkeypatch.undo()
    store._patience._down_until = 0.0  # as if the time were over
    assert store.read(digest_of(0)) is None


def test_with_the_remote_down_the_work_goes_on_with_one_warning(
    settings: Settings, key_of: KeyOf, events: list[CacheEvent], monkeypatch: pytest.MonkeyPatch, recwarn: Any
) -> None:
    Broken(monkeypatch, "cat_file", "pipe_file")
    cache = Cache.open(URL, settings, observers=[events.append])
    for number in range(3):
        assert cache.get_or_create(key_of(number), lambda: b"neff") == b"neff"
    assert len(recwarn) == 1
    assert "no route to host" in str(recwarn[0].message)
    outcomes = [event.outcome for event in events]
    assert outcomes.count(Outcome.MISS) == 3
    assert Outcome.REMOTE_ERROR in outcomes
    again = Cache.open(URL, settings)
    assert again.get_or_create(key_of(0), lambda: b"never") == b"neff"  # kept in the local layer


def test_what_was_fetched_once_is_read_from_the_disk(
    settings: Settings, key: CacheKey, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = Cache.open(URL, replace(settings, local_directory=str(place / "builder")))
    builder.put(key, b"neff")
    worker = Cache.open(URL, settings)
    assert worker.get_or_create(key, lambda: b"never") == b"neff"
    Broken(monkeypatch, "cat_file", "info")
    assert Cache.open(URL, settings).get_or_create(key, lambda: b"never") == b"neff"


def test_a_damaged_local_copy_is_replaced_by_the_good_remote_one(settings: Settings, key: CacheKey) -> None:
    cache = Cache.open(URL, replace(settings, memory_bytes=0))
    cache.put(key, b"neff")
    assert isinstance(cache.store, ReadThroughStore)
    file = Path(cache.store.local.path) / key.digest[:2] / key.digest
    file.write_bytes(b"damaged")
    with pytest.warns(CacheWarning, match="is damaged"):
        assert cache.get_or_create(key, lambda: b"never") == b"neff"
    assert cache.get(key) == b"neff"


def test_a_damaged_remote_entry_is_made_again(settings: Settings, key: CacheKey, place: Path) -> None:
    Cache.open(URL, replace(settings, local_directory=str(place / "builder"))).put(key, b"neff")
    FsspecStore(URL).write(key.digest, b"damaged")
    cache = Cache.open(URL, replace(settings, memory_bytes=0))
    with pytest.warns(CacheWarning, match="is damaged"):
        assert cache.get_or_create(key, lambda: b"again") == b"again"
    fresh = Cache.open(URL, replace(settings, local_directory=str(place / "third")))
    assert fresh.get(key) == b"again"


def test_limits_concern_the_local_layer(settings: Settings, key_of: KeyOf) -> None:
    cache = Cache.open(URL, settings)
    for number in range(4):
        cache.put(key_of(number), b"neff")
        cache.release(key_of(number))
    assert len(cache.prune(Limits(max_bytes=0))) == 4
    assert cache.stats().entries == 4
    assert cache.get(key_of(0)) == b"neff"


def test_headers_are_read_without_the_contents(key: CacheKey, settings: Settings) -> None:
    cache = Cache.open(URL, settings, read_through=False)
    cache.put(key, os.urandom(500_000), {"graph": "g"})
    read: list[int] = []
    store = cache.store
    assert isinstance(store, FsspecStore)
    real = store.read_range
    store.read_range = lambda digest, start, end: (read.append(end - start), real(digest, start, end))[1]  # type: ignore[method-assign, func-returns-value]
    assert [header.labels for _, header in cache.headers()] == [{"graph": "g"}]
    assert sum(read) < 5_000


def test_an_explanation_fetches_no_contents(settings: Settings, place: Path, key_of: KeyOf) -> None:
    builder = Cache.open(URL, replace(settings, local_directory=str(place / "builder")))
    builder.put(key_of(1), os.urandom(100_000))
    worker = Cache.open(URL, settings)
    assert [difference.name for difference in worker.why(key_of(1, target="trn3")).differences] == ["target"]
    assert isinstance(worker.store, ReadThroughStore)
    assert list(worker.store.local.scan()) == []


def test_a_missing_package_is_named_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(scheme: str) -> None:
        raise ImportError("Install gcsfs to access Google Storage")

    monkeypatch.setattr(fsspec, "get_filesystem_class", missing)
    with pytest.raises(UnknownSchemeError, match="pip install gcsfs"):
        open_store("gs://bucket/neff")


# ---- from store to store


def test_a_copy_goes_on_where_it_was_broken_off(cache: Cache, settings: Settings, key_of: KeyOf) -> None:
    for number in range(6):
        cache.put(key_of(number), b"neff %d" % number)
    target = Cache.open(URL, settings, read_through=False)
    total, transfers = copy(cache, target)
    assert total == 6
    assert [next(transfers).result for _ in range(2)] == [Transfer.COPIED] * 2
    del transfers  # broken off
    results = [transferred.result for transferred in copy(cache, target)[1]]
    assert sorted(results) == ["copied"] * 4 + ["present"] * 2
    assert [target.get(key_of(number)) for number in range(6)] == [b"neff %d" % number for number in range(6)]


def test_bad_entries_are_not_copied(cache: Cache, settings: Settings, key_of: KeyOf) -> None:
    for number in range(3):
        cache.put(key_of(number), b"neff")
    bad = key_of(1).digest
    (Path(settings.neff_url) / bad[:2] / bad).write_bytes(b"damaged")
    target = Cache.open(URL, settings, read_through=False)
    left_out = [transferred for transferred in copy(cache, target)[1] if transferred.result is Transfer.BAD]
    assert [transferred.digest for transferred in left_out] == [bad]
    assert target.stats().entries == 2


def test_push_and_pull_from_the_command_line(
    cache: Cache, settings: Settings, key_of: KeyOf, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_NEURONX_NEFF_CACHE_DIR", settings.neff_url)
    monkeypatch.setenv("TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR", settings.local_directory)
    for number in range(3):
        cache.put(key_of(number), b"neff")
    run = CliRunner().invoke
    assert "Copied 3 entries" in run(app, ["push", URL]).output
    again = json.loads(run(app, ["push", URL, "--json"]).output)
    assert (again["copied"], again["present"], again["bad"]) == (0, 3, 0)
    assert "Copied 3 entries" in run(app, ["pull", URL, "--store", str(place / "other")]).output
    assert Cache.open(str(place / "other"), settings).get(key_of(1)) == b"neff"
    listed = json.loads(run(app, ["ls", "--store", URL, "--json"]).output)
    assert {entry["key"] for entry in listed} == {key_of(number).digest for number in range(3)}
