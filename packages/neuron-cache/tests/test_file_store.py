from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from torch_neuronx_cache import Store, open_store
from torch_neuronx_cache.errors import CacheConfigurationError, StoreError, StoreRefusedError
from torch_neuronx_cache.stores.file import FileStore
from torch_neuronx_cache.testing import StoreConformance, digest_of

A, B, C = digest_of(0), digest_of(1), digest_of(2)


class TestFileStore(StoreConformance):
    @pytest.fixture
    def open_store(self, place: Path) -> Callable[[], Store]:
        return lambda: open_store(f"file://{place}/store")


@pytest.fixture
def store(place: Path) -> FileStore:
    return FileStore(place / "store")


def files_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir()) if directory.exists() else []


@pytest.mark.parametrize("url", ["{}/a b", "file://{}/a%20b", "file://localhost{}/a%20b", "FILE://{}/a%20b"])
def test_a_path_and_a_file_url_are_one_place(place: Path, url: str) -> None:
    opened = open_store(url.format(place))
    assert isinstance(opened, FileStore)
    assert opened.path == f"{place}/a b"


@pytest.mark.parametrize("url", ["file://other-host/path", "file://relative"])
def test_a_file_url_of_another_host_is_refused(url: str) -> None:
    with pytest.raises(CacheConfigurationError, match="file:///absolute/path"):
        open_store(url)


def test_reading_makes_no_directory(store: FileStore, place: Path) -> None:
    assert store.read(A) is None
    assert list(store.scan()) == []
    store.sweep()
    assert files_in(place) == []


def test_directories_and_entries_are_private(store: FileStore, place: Path) -> None:
    old = os.umask(0)
    try:
        store.write(A, b"x")
        store.record_use(A)
        store.hold(A)
    finally:
        os.umask(old)
    for path in (place / "store").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    assert stat.S_IMODE((place / "store").stat().st_mode) == 0o700


def test_entries_are_readable_by_those_who_may_read_the_directory(store: FileStore, place: Path) -> None:
    (place / "store").mkdir(mode=0o755)
    store.write(A, b"x")
    assert stat.S_IMODE((place / "store" / A[:2]).stat().st_mode) == 0o755
    assert stat.S_IMODE((place / "store" / A[:2] / A).stat().st_mode) == 0o644


def test_a_failed_write_leaves_nothing(store: FileStore, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StoreError, match="No space left on device"):
        store.write(A, b"x")
    monkeypatch.undo()
    assert files_in(place / "store" / "tmp") == []
    assert store.read(A) is None


def test_a_directory_in_the_place_of_an_entry_gives_way(store: FileStore, place: Path) -> None:
    (place / "store" / A[:2] / A / "deep").mkdir(parents=True, mode=0o700)
    for directory in (place / "store", place / "store" / A[:2]):
        directory.chmod(0o700)
    assert store.read(A) == b""
    store.write(A, b"x")
    assert store.read(A) == b"x"
    assert len(files_in(place / "store" / "aside")) == 1
    assert store.remove(A)
    (place / "store" / A[:2] / A).mkdir()
    assert store.evict([A]) == [A]
    assert len(files_in(place / "store" / "aside")) == 2


def test_a_fifo_in_the_place_of_an_entry_does_not_hang(store: FileStore, place: Path) -> None:
    store.write(B, b"x")
    (place / "store" / A[:2]).mkdir(mode=0o700, exist_ok=True)
    os.mkfifo(place / "store" / A[:2] / A)
    assert store.read(A) == b""


def test_links_are_not_followed(store: FileStore, place: Path) -> None:
    elsewhere = FileStore(place / "elsewhere")
    elsewhere.write(A, b"x")
    (place / "store").symlink_to(place / "elsewhere")
    for use in (lambda: store.read(A), lambda: list(store.scan()), lambda: store.write(B, b"y")):
        with pytest.raises(StoreRefusedError, match=f"Use the directory that it points to: {place}/elsewhere"):
            use()
    (place / "store").unlink()
    (place / "store").mkdir(mode=0o700)
    (place / "store" / A[:2]).symlink_to(place / "elsewhere" / A[:2])
    with pytest.raises(StoreRefusedError, match="symbolic link"):
        store.read(A)
    with pytest.raises(StoreRefusedError, match="is not a directory"):
        store.write(A, b"y")
    (place / "store" / A[:2]).unlink()
    (place / "store" / A[:2]).mkdir(mode=0o700)
    (place / "store" / A[:2] / A).symlink_to(place / "elsewhere" / A[:2] / A)
    with pytest.raises(StoreRefusedError, match="symbolic link"):
        store.read(A)
    store.write(A, b"new")
    assert store.read(A) == b"new"
    assert elsewhere.read(A) == b"x"


def test_temporary_files_of_dead_processes_are_swept(store: FileStore, place: Path, fork: Callable[..., Any]) -> None:
    store.write(A, b"x")
    tmp = place / "store" / "tmp"

    def die_while_writing() -> None:
        real = os.rename
        os.rename = lambda *args, **kwargs: os._exit(9)
        try:
            FileStore(place / "store").write(B, b"y")
        finally:
            os.rename = real

    assert fork(die_while_writing).wait() == 9
    assert len(files_in(tmp)) == 1
    ours = tmp / store._temporary(C)
    foreign, old = (tmp / f"0123456789ab-1-1.0.{age}.x" for age in ("new", "old"))
    for path in (ours, foreign, old):
        path.write_bytes(b"half")
    two_days_ago = time.time() - 48 * 3600
    os.utime(old, (two_days_ago, two_days_ago))
    FileStore(place / "store").write(C, b"z")
    assert files_in(tmp) == sorted([ours.name, foreign.name])


def test_what_was_set_aside_goes_after_a_week(store: FileStore) -> None:
    store.write(A, b"bad")
    kept = store.set_aside(A, "test")
    assert kept is not None
    assert Path(kept).read_bytes() == b"bad"
    store.sweep()
    assert Path(kept).exists()
    eight_days_ago = time.time() - 8 * 24 * 3600
    os.utime(kept, (eight_days_ago, eight_days_ago))
    store.sweep()
    assert not Path(kept).exists()


def test_holds_end_with_the_process(store: FileStore, fork: Callable[..., Any]) -> None:
    store.write(A, b"x")
    ready, go = os.pipe(), os.pipe()

    def hold() -> None:
        FileStore(store.path).hold(A)
        os.write(ready[1], b".")
        os.read(go[0], 1)
        os._exit(0)  # without a farewell

    child = fork(hold)
    os.read(ready[0], 1)
    assert store.evict([A]) == []
    assert store.read(A) == b"x"
    os.write(go[1], b".")
    assert child.wait() == 0
    assert store.evict([A]) == [A]
    assert files_in(Path(store.path) / "holds") == []


def test_a_forked_child_holds_for_itself(store: FileStore, fork: Callable[..., Any]) -> None:
    store.write(A, b"x")
    store.hold(A)

    def child() -> None:
        assert not store._holds.has(A)
        store.hold(B)
        store.close()

    assert fork(child).wait() == 0
    assert store.held() == {A}


def test_holds_of_another_host_count_for_a_week(store: FileStore, place: Path) -> None:
    store.write(A, b"x")
    (place / "store" / "holds").mkdir(mode=0o700)
    foreign = place / "store" / "holds" / "0123456789ab-1-1.abc"
    foreign.write_text(f"+{A}\n+{B}\n-{B}\n")
    assert store.held() == {A}
    eight_days_ago = time.time() - 8 * 24 * 3600
    os.utime(foreign, (eight_days_ago, eight_days_ago))
    assert store.held() == frozenset()


def test_no_hold_is_added_while_an_eviction_is_at_work(
    store: FileStore, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.write(A, b"x")
    reader = FileStore(place / "store")
    held = []
    thread = threading.Thread(target=lambda: (reader.hold(A), held.append(A)))
    real = store.remove

    def remove(digest: str) -> bool:
        thread.start()
        thread.join(0.05)
        assert held == []
        return real(digest)

    monkeypatch.setattr(store, "remove", remove)
    assert store.evict([A]) == [A]
    thread.join()
    assert store.held() == {A}


def test_uses_are_counted_across_processes(store: FileStore, fork: Callable[..., Any]) -> None:
    store.write(A, b"x")
    (before,) = store.scan()

    def use() -> None:
        own = FileStore(store.path)
        for _ in range(10):
            own.record_use(A)
        own.close()

    children = [fork(use) for _ in range(4)]
    assert [child.wait() for child in children] == [0] * 4
    (after,) = store.scan()
    assert (before.hits, after.hits) == (0, 40)
    assert after.used > before.used
    assert after.created == before.created


def test_uses_are_not_written_into_another_file(store: FileStore, place: Path) -> None:
    store.write(A, b"x")
    (place / "precious").write_text("precious")
    os.link(place / "precious", place / "store" / A[:2] / f"{A}.uses")
    store.record_use(A)
    assert (place / "precious").read_text() == "precious"


def test_a_store_that_vanished_is_made_again(store: FileStore, place: Path) -> None:
    import shutil

    store.write(A, b"x")
    shutil.rmtree(place / "store")
    assert store.read(A) is None
    assert store.evict([A]) == []
    store.write(A, b"y")
    assert store.read(A) == b"y"


def test_files_that_are_not_ours_are_left_alone(store: FileStore, place: Path) -> None:
    store.write(A, b"x")
    for stranger in ("README", f"{A[:2]}/notes.txt"):
        (place / "store" / stranger).write_text("mine")
    assert [blob.digest for blob in store.scan()] == [A]
    store.evict([A])
    store.sweep()
    assert (place / "store" / "README").exists()
    assert (place / "store" / A[:2] / "notes.txt").exists()


def test_a_file_in_the_place_of_the_directory_is_an_error(place: Path) -> None:
    (place / "store").write_text("a file")
    with pytest.raises(StoreError, match="Not a directory"):
        FileStore(place / "store").write(A, b"x")
