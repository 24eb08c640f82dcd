from __future__ import annotations

import os
import subprocess
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from torch_neuronx_cache import Cache, CacheEvent, CacheKey, CacheWarning, Layer, Limits, Outcome, Settings, Verdict
from torch_neuronx_cache.errors import (
    CacheConfigurationError,
    InvalidEntryError,
    StoreError,
    UnknownEntryError,
)
from torch_neuronx_cache.stores.file import FileStore

KeyOf = Callable[..., CacheKey]
NEVER = "must not be made"


def never() -> bytes:
    raise AssertionError(NEVER)


def outcomes(events: list[CacheEvent]) -> list[str]:
    found = [f"{event.outcome} {event.layer}" if event.layer else event.outcome.value for event in events]
    events.clear()
    return found


def entry_file(cache: Cache, key: CacheKey) -> Path:
    assert isinstance(cache.store, FileStore)
    return Path(cache.store.path) / key.digest[:2] / key.digest


def test_made_once_then_found_in_memory_and_in_the_store(
    cache: Cache, settings: Settings, key: CacheKey, events: list[CacheEvent]
) -> None:
    assert cache.get(key) is None
    assert cache.get_or_create(key, lambda: b"neff", {"graph": "g"}) == b"neff"
    assert outcomes(events) == ["miss", "miss", "stored"]
    assert cache.get_or_create(key, never) == b"neff"
    assert cache.get(key) == b"neff"
    assert outcomes(events) == ["hit memory", "hit memory"]
    again = Cache.open(settings.neff_url, settings, observers=[events.append])
    assert again.get_or_create(key, never, {"graph": "g"}) == b"neff"
    (event,) = events
    assert (event.outcome, event.layer, event.size) == (Outcome.HIT, Layer.STORE, 4)
    assert (event.kind, event.key, event.store) == ("neff", key.digest, f"file://{settings.neff_url}")
    assert event.labels == {"graph": "g"}
    assert event.seconds > 0


def test_what_make_raises_passes_through_and_nothing_is_stored(cache: Cache, key: CacheKey) -> None:
    with pytest.raises(ZeroDivisionError):
        cache.get_or_create(key, lambda: bytes([1 // 0]))
    assert cache.get_or_create(key, lambda: b"second try") == b"second try"


def test_only_bytes_are_cached(cache: Cache, key: CacheKey) -> None:
    with pytest.raises(TypeError, match="must be bytes, not str"):
        cache.get_or_create(key, lambda: "text")  # type: ignore[arg-type, return-value]
    assert cache.get(key) is None


def test_make_may_use_the_cache_for_other_keys(cache: Cache, key_of: KeyOf) -> None:
    inner = lambda: cache.get_or_create(key_of(2), lambda: b"inner")  # noqa: E731
    assert cache.get_or_create(key_of(1), inner) == b"inner"


def test_threads_that_want_one_key_make_it_once(settings: Settings, key: CacheKey) -> None:
    cache = Cache.open(settings.neff_url, replace(settings, memory_bytes=0))
    made = []
    start = threading.Barrier(8)

    def make() -> bytes:
        made.append(1)
        time.sleep(0.05)
        return b"neff"

    def work(_: int) -> bytes:
        start.wait()
        return cache.get_or_create(key, make)

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(work, range(8))) == {b"neff"}
    assert len(made) == 1


def test_a_switched_off_cache_makes_everything_anew(
    key: CacheKey, settings: Settings, events: list[CacheEvent]
) -> None:
    cache = Cache.open(None, settings, observers=[events.append])
    made = iter([b"first", b"second"])
    assert cache.get_or_create(key, lambda: next(made)) == b"first"
    assert cache.get_or_create(key, lambda: next(made)) == b"second"
    assert cache.get(key) is None
    assert cache.put(key, b"x") is False
    assert outcomes(events) == ["disabled"] * 3
    with pytest.raises(CacheConfigurationError, match="switched off"):
        cache.stats()


# ---- damage


@pytest.mark.parametrize("flip", [0x01, 0xFF])
def test_every_flipped_byte_is_found_out_and_made_again(
    settings: Settings, key: CacheKey, events: list[CacheEvent], flip: int, recwarn: pytest.WarningsRecorder
) -> None:
    cache = Cache.open(settings.neff_url, replace(settings, memory_bytes=0), observers=[events.append])
    assert isinstance(cache.store, FileStore)
    cache.store.durable = False
    cache.put(key, b"good content")
    file = entry_file(cache, key)
    good = file.read_bytes()
    events.clear()
    for position in range(len(good)):
        damaged = bytearray(good)
        damaged[position] ^= flip
        file.write_bytes(damaged)
        assert cache.get_or_create(key, lambda: b"good content") == b"good content"
        assert outcomes(events) == ["corrupt", "miss", "stored"]
        assert cache.get(key) == b"good content"
        events.clear()
    assert "is damaged" in str(recwarn[0].message)
    assert len(recwarn) == 1
    assert len(list((file.parent.parent / "aside").iterdir())) == len(good)


def test_every_truncation_is_found_out_and_made_again(
    settings: Settings, key: CacheKey, recwarn: pytest.WarningsRecorder
) -> None:
    cache = Cache.open(settings.neff_url, replace(settings, memory_bytes=0))
    assert isinstance(cache.store, FileStore)
    cache.store.durable = False
    cache.put(key, b"good content")
    file = entry_file(cache, key)
    good = file.read_bytes()
    for length in range(len(good)):
        file.write_bytes(good[:length])
        assert cache.get(key) is None
        assert cache.get_or_create(key, lambda: b"good content") == b"good content"
    assert "is damaged" in str(recwarn[0].message)
    assert len(recwarn) == 1


def test_an_empty_file_a_directory_and_another_keys_entry_are_found_out(cache: Cache, key_of: KeyOf) -> None:
    cache.put(key_of(1), b"one")
    other = entry_file(cache, key_of(1)).read_bytes()

    def directory(file: Path) -> None:
        file.mkdir()

    plant: list[Callable[[Path], object]] = [lambda f: f.touch(), directory, lambda f: f.write_bytes(other)]
    for number, put_there in enumerate(plant, 10):
        file = entry_file(cache, key_of(number))
        file.parent.mkdir(mode=0o700, exist_ok=True)
        put_there(file)
        file.chmod(0o700)
        with pytest.warns(CacheWarning, match="is damaged"):
            assert cache.get(key_of(number)) is None
        assert not file.exists()
        assert cache.get_or_create(key_of(number), lambda: b"made") == b"made"
        cache.forget_memory()
        assert cache.get(key_of(number)) == b"made"


def test_damage_in_a_directory_that_cannot_be_written_is_still_not_served(
    cache: Cache, key: CacheKey, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    cache.put(key, b"neff")
    cache.forget_memory()
    entry_file(cache, key).write_bytes(b"damaged")

    def read_only(*_: Any, **__: Any) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "rename", read_only)
    assert cache.get(key) is None
    assert cache.get(key) is None
    assert sorted(str(warning.message)[:9] for warning in recwarn) == ["A damaged", "The entry"]


# ---- stores that fail


def test_without_space_the_work_goes_on_with_one_warning(
    cache: Cache,
    key_of: KeyOf,
    events: list[CacheEvent],
    monkeypatch: pytest.MonkeyPatch,
    recwarn: pytest.WarningsRecorder,
) -> None:
    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("torch_neuronx_cache.stores.file._write_all", full)
    for number in range(3):
        assert cache.get_or_create(key_of(number), lambda: b"neff") == b"neff"
    assert "No space left on device" in str(recwarn[0].message)
    assert len(recwarn) == 1
    assert outcomes(events) == ["miss", "store error"] * 3
    assert cache.get(key_of(0)) == b"neff"  # from memory


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_full_disk(place: Path, settings: Settings, key_of: KeyOf, recwarn: pytest.WarningsRecorder) -> None:
    small = place / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k,mode=0700", "none", str(small)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {mounted.stderr.decode().strip()}")
    try:
        cache = Cache.open(str(small), replace(settings, memory_bytes=0))
        contents = {key_of(number): os.urandom(60_000) for number in range(8)}
        for key, content in contents.items():
            assert cache.get_or_create(key, lambda content=content: content) == content  # type: ignore[misc]
        assert "No space left on device" in str(recwarn[0].message)
        assert len(recwarn) == 1
        kept = [key for key, content in contents.items() if cache.get(key) == content]
        assert 1 <= len(kept) < len(contents)
        assert {checked.verdict for checked in cache.verify()} == {Verdict.GOOD}
        assert list((small / "tmp").iterdir()) == []
        cache.close()
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_store_that_cannot_be_read_costs_one_warning(
    cache: Cache,
    key: CacheKey,
    events: list[CacheEvent],
    monkeypatch: pytest.MonkeyPatch,
    recwarn: pytest.WarningsRecorder,
) -> None:
    def broken(*_: Any) -> None:
        raise StoreError("Input/output error")

    assert cache.store is not None
    monkeypatch.setattr(cache.store, "open", broken)
    assert cache.get(key) is None
    assert cache.get_or_create(key, lambda: b"neff") == b"neff"
    assert "Input/output error" in str(recwarn[0].message)
    assert len(recwarn) == 1
    assert outcomes(events) == ["store error", "miss", "store error", "miss", "stored"]


def test_locks_that_cannot_be_had_cost_one_warning(
    place: Path, settings: Settings, key_of: KeyOf, recwarn: pytest.WarningsRecorder
) -> None:
    (place / "local").write_text("a file where the directory of locks should be")
    cache = Cache.open(settings.neff_url, settings)
    assert cache.get_or_create(key_of(1), lambda: b"one") == b"one"
    assert cache.get_or_create(key_of(2), lambda: b"two") == b"two"
    assert "goes on without locks" in str(recwarn[0].message)
    assert len(recwarn) == 1


# ---- observers


def test_an_observer_that_raises_is_named_once_and_ignored(settings: Settings, key: CacheKey) -> None:
    def broken(event: CacheEvent) -> None:
        raise ValueError("observer")

    seen: list[CacheEvent] = []
    cache = Cache.open(settings.neff_url, settings, observers=[broken, seen.append])
    with pytest.warns(CacheWarning, match=r"broken.*raised ValueError") as said:
        assert cache.get_or_create(key, lambda: b"neff") == b"neff"
    assert len(said) == 1
    assert outcomes(seen) == ["miss", "stored"]


# ---- why


def test_why_names_the_part_that_differs_from_the_nearest_entry(cache: Cache, key_of: KeyOf) -> None:
    assert str(cache.why(key_of(1))).endswith("holds no neff entry to compare with.")
    cache.put(key_of(1), b"1", {"graph": "forward"})
    cache.put(key_of(1, target="trn3", compiler="other 9"), b"2", {"graph": "forward"})
    wanted = key_of(1, compiler_config={"opt_level": 2, "auto_cast": "none"})
    explanation = cache.why(wanted)
    assert explanation.present is False
    assert explanation.compared == 2
    assert explanation.nearest is not None
    assert explanation.nearest.key == key_of(1)
    assert [difference.name for difference in explanation.differences] == ["compiler_config"]
    assert str(explanation).splitlines() == [
        f"{wanted.digest[:12]} differs from the nearest of 2 entries, {key_of(1).digest[:12]} (forward), in:",
        "  compiler_config.opt_level: 1 -> 2",
    ]
    assert cache.why(key_of(1)).present is True


def test_among_equally_near_entries_the_same_graph_comes_first(cache: Cache, key_of: KeyOf) -> None:
    cache.put(key_of(1), b"1", {"graph": "forward"})
    cache.put(key_of(2), b"2", {"graph": "backward"})
    for graph, number in (("forward", 1), ("backward", 2)):
        nearest = cache.why(key_of(3), {"graph": graph}).nearest
        assert nearest is not None
        assert nearest.key == key_of(number)


def test_a_miss_explains_itself_when_asked(cache: Cache, key_of: KeyOf, events: list[CacheEvent]) -> None:
    cache.put(key_of(1), b"1")
    events.clear()
    cache.get(key_of(1, target="trn3"))
    (miss,) = events
    assert miss.explain is not None
    explanation = miss.explain()
    assert explanation is not None
    assert [difference.describe() for difference in explanation.differences] == ["target: trn2 -> trn3"]


def test_lines_moved_or_another_name_is_a_hit_since_labels_are_no_parts(cache: Cache, key_of: KeyOf) -> None:
    cache.put(key_of(1), b"neff", {"graph": "model_0_forward", "model": "model"})
    cache.forget_memory()
    assert cache.get(key_of(1), {"graph": "other_0_forward", "model": "other"}) == b"neff"


def test_entries_are_found_by_the_start_of_the_key_or_by_graph(cache: Cache, key_of: KeyOf) -> None:
    cache.put(key_of(1), b"1", {"graph": "forward"})
    cache.put(key_of(2), b"2", {"graph": "forward"})
    assert [header.key for _, header in cache.find("forward")] == [key_of(2), key_of(1)]
    assert [header.key for _, header in cache.find(key_of(1).digest[:9])] == [key_of(1)]
    with pytest.raises(UnknownEntryError, match="nor a graph of that name"):
        cache.find("sideways")


# ---- upkeep


def test_verify_finds_and_repairs(cache: Cache, key_of: KeyOf) -> None:
    for number in range(4):
        cache.put(key_of(number), b"neff")
    entry_file(cache, key_of(1)).write_bytes(b"")
    found = {checked.digest: checked for checked in cache.verify()}
    assert found[key_of(1).digest].verdict is Verdict.CORRUPT
    assert "truncated" in found[key_of(1).digest].reason
    assert sorted(checked.verdict for checked in found.values()) == ["corrupt", "good", "good", "good"]
    (bad,) = [checked for checked in cache.verify(repair=True) if checked.verdict is Verdict.CORRUPT]
    assert bad.kept_at is not None
    assert Path(bad.kept_at).exists()
    assert {checked.verdict for checked in cache.verify()} == {Verdict.GOOD}
    entry_file(cache, key_of(2)).write_bytes(b"x" * 500)
    with pytest.raises(InvalidEntryError):
        cache.load(key_of(2).digest)


def test_the_size_of_a_store_is_kept_by_dropping_the_longest_unused(settings: Settings, key_of: KeyOf) -> None:
    size = 10_000
    limited = replace(settings, limits=Limits(max_bytes=5 * (size + 1000)), memory_bytes=0)
    cache = Cache.open(settings.neff_url, limited)
    for number in range(20):
        cache.put(key_of(number), os.urandom(size))
        cache.release(key_of(number))
        if number >= 1:
            assert cache.store is not None
            assert isinstance(cache.store, FileStore)
            cache.store.use_interval = 0
            assert cache.get(key_of(0)) is not None
            cache.release(key_of(0))
    stats = cache.stats()
    assert stats.size <= 5 * (size + 1000)
    assert stats.entries >= 4
    assert cache.get(key_of(0)) is not None
    assert cache.get(key_of(1)) is None


def test_what_a_running_process_got_is_not_evicted(settings: Settings, key_of: KeyOf, fork: Callable[..., Any]) -> None:
    cache = Cache.open(settings.neff_url, settings)
    for number in range(5):
        cache.put(key_of(number), b"neff")

    def prune() -> None:
        other = Cache.open(settings.neff_url, settings)
        assert other.prune(Limits(max_bytes=0)) == []
        assert other.clear() == (0, 5)

    assert fork(prune).wait() == 0
    cache.release(key_of(0))
    other = Cache.open(settings.neff_url, settings)
    assert [blob.digest for blob in other.prune(Limits(max_bytes=0))] == [key_of(0).digest]
    cache.close()
    assert len(other.prune(Limits(max_bytes=0))) == 4


def test_age_and_choice_prune(cache: Cache, key_of: KeyOf, events: list[CacheEvent]) -> None:
    for number in range(3):
        cache.put(key_of(number, compiler=f"emulator {number}"), b"neff")
        cache.release(key_of(number, compiler=f"emulator {number}"))
    old = entry_file(cache, key_of(0, compiler="emulator 0"))
    os.utime(old, (time.time() - 1000, time.time() - 1000))
    assert [blob.digest for blob in cache.prune(Limits(max_age=500), dry_run=True)] == [old.name]
    assert [blob.digest for blob in cache.prune(Limits(max_age=500))] == [old.name]
    chosen = cache.prune(choose=lambda header: header.describe("compiler") == "emulator 1")
    assert [blob.digest for blob in chosen] == [key_of(1, compiler="emulator 1").digest]
    assert [event.key for event in events if event.outcome is Outcome.EVICTED] == [old.name, chosen[0].digest]
    assert cache.stats().entries == 1


def test_clear_removes_all_and_with_force_what_others_hold(settings: Settings, key_of: KeyOf) -> None:
    holder, cleaner = (Cache.open(settings.neff_url, settings) for _ in range(2))
    holder.put(key_of(1), b"1")
    cleaner.put(key_of(2), b"2")
    assert cleaner.clear() == (1, 1)
    assert cleaner.clear(force=True) == (1, 0)
    assert cleaner.get(key_of(2)) is None
    assert cleaner.stats().entries == 0


def test_stats_add_up(cache: Cache, key_of: KeyOf) -> None:
    assert cache.stats().newest is None
    for number in range(3):
        cache.put(key_of(number), b"neff")
    cache.forget_memory()
    cache.get(key_of(1))
    stats = cache.stats()
    assert (stats.entries, stats.hits) == (3, 1)
    assert stats.size == sum(blob.size for blob, _ in cache.headers())


def test_the_memory_layer_keeps_its_bound(settings: Settings, key_of: KeyOf) -> None:
    cache = Cache.open(settings.neff_url, replace(settings, memory_bytes=25_000))
    for number in range(5):
        cache.put(key_of(number), bytes(10_000))
    cache.put(key_of(9), bytes(30_000))
    assert len(cache._memory) == 2
    assert cache._memory.size == 20_000


def test_a_forked_child_finds_what_the_parent_had_in_memory(
    cache: Cache, key: CacheKey, events: list[CacheEvent], fork: Callable[..., Any]
) -> None:
    cache.put(key, b"neff")
    events.clear()

    def child() -> None:
        with cache._memory._lock:
            pass
        assert cache.get(key) == b"neff"
        assert outcomes(events) == ["hit memory"]

    with cache._memory._lock:  # as if another thread were in it
        child_process = fork(child)
    assert child_process.wait() == 0


def test_nothing_is_said_when_nothing_is_wrong(cache: Cache, key: CacheKey) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.get_or_create(key, lambda: b"neff")
        list(cache.verify(repair=True))
        cache.prune()
        cache.close()


def test_a_good_entry_that_just_replaced_a_bad_one_is_left_alone(
    settings: Settings, key: CacheKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process repairs the entry between this one's reading of it and its setting it aside."""
    cache = Cache.open(settings.neff_url, replace(settings, memory_bytes=0))
    cache.put(key, b"good")
    good = entry_file(cache, key).read_bytes()
    entry_file(cache, key).write_bytes(b"bad")
    assert cache.locks is not None
    real = cache.locks.acquire

    def acquire_late(digest: str, timeout: float | None = None) -> Any:
        entry_file(cache, key).write_bytes(good)
        return real(digest, timeout)

    monkeypatch.setattr(cache.locks, "acquire", acquire_late)
    with pytest.warns(CacheWarning, match="is damaged"):
        assert cache.get(key) == b"good"
