"""Two real users, by forked children that change their user id."""

from __future__ import annotations

import email.parser  # noqa: F401 - as the next: imported late by what is tested, from a folder that may be closed
import encodings.ascii  # noqa: F401
import os
import secrets  # noqa: F401
import stat
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from torch_neuronx_cache import Cache, CacheEvent, CacheKey, CacheWarning, Outcome, Settings, Trust, notices
from torch_neuronx_cache.errors import StoreRefusedError
from torch_neuronx_cache.stores.file import FileStore

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="changing the user id needs root")

ALICE, BOB = 40_001, 40_002

Fork = Callable[..., Any]


@pytest.fixture
def as_user(fork: Fork) -> Callable[[int, Callable[[], object]], None]:
    """Run a function as another user; what it raises fails the test."""

    def run(uid: int, function: Callable[[], object]) -> None:
        def become_and_run() -> None:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            os.umask(0o022)
            notices.forget()
            function()

        assert fork(become_and_run).wait() == 0

    return run


AsUser = Callable[[int, Callable[[], object]], None]


@pytest.fixture
def shared(place: Path) -> Path:
    """A directory that everybody can write, like /tmp."""
    directory = place / "shared"
    directory.mkdir()
    directory.chmod(0o1777)
    return directory


def open_as(place: Path, url: Path, uid: int, **changes: Any) -> tuple[Cache, list[CacheEvent]]:
    settings = Settings(str(url), "", str(place / f"local-{uid}"), lock_timeout=10, memory_bytes=0)
    events: list[CacheEvent] = []
    return Cache.open(str(url), replace(settings, **changes), observers=[events.append]), events


def put_as(place: Path, url: Path, uid: int, key: CacheKey, **changes: Any) -> Callable[[], None]:
    def put() -> None:
        cache, _ = open_as(place, url, uid, **changes)
        assert cache.put(key, b"alice's program")

    return put


def assert_refused(place: Path, url: Path, uid: int, key: CacheKey, words: list[str], **changes: Any) -> None:
    """The key is not served, is made anew, and the one warning has these words."""
    cache, events = open_as(place, url, uid, **changes)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert cache.get(key) is None
        assert cache.get_or_create(key, lambda: b"my own program") == b"my own program"
    assert Outcome.REFUSED in {event.outcome for event in events}
    assert {event.outcome for event in events if event.layer} == set()
    messages = [str(warning.message) for warning in said if issubclass(warning.category, CacheWarning)]
    refusals = [message for message in messages if all(word in message for word in words)]
    assert len(refusals) == 1, messages


WAYS_OUT = ["TORCH_NEURONX_CACHE_TRUST", "TORCH_NEURONX_CACHE_SIGNING_KEY_FILE"]


def test_another_users_directory_is_not_loaded(place: Path, shared: Path, key: CacheKey, as_user: AsUser) -> None:
    as_user(ALICE, lambda: (shared / "store").mkdir(mode=0o755))
    as_user(ALICE, put_as(shared, shared / "store", ALICE, key))
    words = ["belongs to user", str(ALICE), *WAYS_OUT]
    as_user(BOB, lambda: assert_refused(shared, shared / "store", BOB, key, words))
    assert_refused(shared, shared / "store", 0, key, words)  # not by root either


def test_a_directory_that_others_can_write_is_not_loaded(shared: Path, key: CacheKey, as_user: AsUser) -> None:
    for mode in (0o777, 0o775, 0o1777):
        directory = shared / f"store-{mode:o}"

        def prepare(directory: Path = directory, mode: int = mode) -> None:
            put_as(shared, directory, ALICE, key)()
            directory.chmod(mode)
            assert_refused(
                shared, directory, ALICE, key, ["can be written by others", f"{mode:04o}", "chmod go-w", *WAYS_OUT]
            )

        as_user(ALICE, prepare)


def test_an_entry_of_another_user_is_not_loaded(shared: Path, key: CacheKey, as_user: AsUser) -> None:
    """Alice's directory was open for a while, and Bob left an entry with the right key."""
    as_user(ALICE, put_as(shared, shared / "store", ALICE, key))
    file = shared / "store" / key.digest[:2] / key.digest
    os.chown(file, BOB, BOB)
    file.chmod(0o644)
    as_user(ALICE, lambda: assert_refused(shared, shared / "store", ALICE, key, ["The entry", str(BOB), *WAYS_OUT]))
    file.chmod(0o666)
    os.chown(file, ALICE, ALICE)
    as_user(
        ALICE,
        lambda: assert_refused(shared, shared / "store", ALICE, key, ["The entry", "written by others (mode 0666)"]),
    )


def test_a_link_planted_by_another_user_is_not_followed(shared: Path, key: CacheKey, as_user: AsUser) -> None:
    as_user(BOB, put_as(shared, shared / "bobs", BOB, key))
    as_user(BOB, lambda: (shared / "store").symlink_to(shared / "bobs"))
    as_user(ALICE, lambda: assert_refused(shared, shared / "store", ALICE, key, ["symbolic link"]))
    assert [path.name for path in (shared / "bobs").rglob("*") if path.stat().st_uid == ALICE] == []


def test_a_parent_that_is_swapped_while_the_store_is_open_brings_up_nothing(
    shared: Path, key: CacheKey, as_user: AsUser
) -> None:
    """Bob owns the directory above Alice's store, and swaps the store for his own between her check and her read."""
    above = shared / "above"
    above.mkdir()
    above.chmod(0o777)
    as_user(ALICE, put_as(shared, above / "store", ALICE, key))
    as_user(BOB, put_as(shared, above / "bobs", BOB, key))
    for directory in (above / "bobs").rglob("*"):
        directory.chmod(0o755)
    (above / "bobs").chmod(0o755)

    def read() -> None:
        store = FileStore(above / "store")
        real = store._check_by_name

        def check_and_swap(path: str) -> None:
            real(path)
            if path.endswith(key.digest[:2]):
                os.rename(above / "store", above / "away")
                os.rename(above / "bobs", above / "store")

        store._check_by_name = check_and_swap  # type: ignore[method-assign]
        with pytest.raises(StoreRefusedError, match=f"The entry .* belongs to user {BOB}"):
            store.read(key.digest)

    as_user(ALICE, read)


def test_two_users_share_a_mount_by_trust(shared: Path, key_of: Callable[..., CacheKey], as_user: AsUser) -> None:
    """Each loads what the other made; a third user's entries are refused."""
    carol = 40_003
    trust = {uid: Trust(owners=frozenset({0, ALICE, BOB} - {uid})) for uid in (ALICE, BOB, carol)}
    store = shared / "store"
    store.mkdir()
    store.chmod(0o1777)

    def make(uid: int, number: int) -> None:
        cache, _ = open_as(shared, store, uid, trust=trust[uid])
        assert cache.get_or_create(key_of(number), lambda: b"by %d" % uid) == b"by %d" % uid

    def find(uid: int, maker: int, number: int) -> None:
        cache, _ = open_as(shared, store, uid, trust=trust[uid])
        assert cache.get(key_of(number)) == b"by %d" % maker

    as_user(ALICE, lambda: make(ALICE, 1))
    as_user(BOB, lambda: make(BOB, 2))
    as_user(BOB, lambda: find(BOB, ALICE, 1))
    as_user(ALICE, lambda: find(ALICE, BOB, 2))
    as_user(carol, lambda: make(carol, 3))
    words = ["belongs to user", str(carol)]
    as_user(ALICE, lambda: assert_refused(shared, store, ALICE, key_of(3), words, trust=trust[ALICE]))


def test_two_users_share_a_mount_by_signature(shared: Path, key_of: Callable[..., CacheKey], as_user: AsUser) -> None:
    store = shared / "store"
    store.mkdir()
    store.chmod(0o777)

    def settings_for(uid: int, secret: bytes) -> dict[str, Any]:
        file = shared / f"secret-{uid}-{len(secret)}"
        file.write_bytes(secret)
        file.chmod(0o600)
        return {"signing_key_file": str(file)}

    def make(uid: int, secret: bytes, number: int) -> None:
        cache, _ = open_as(shared, store, uid, **settings_for(uid, secret))
        assert cache.get_or_create(key_of(number), lambda: b"by %d" % uid) == b"by %d" % uid

    def find(uid: int, secret: bytes, content: bytes, number: int) -> None:
        cache, _ = open_as(shared, store, uid, **settings_for(uid, secret))
        assert cache.get(key_of(number)) == content

    def refuse(uid: int, secret: bytes, number: int, word: str) -> None:
        assert_refused(shared, store, uid, key_of(number), [word], **settings_for(uid, secret))

    secret, other = b"a secret of both users", b"a secret of somebody else"
    as_user(ALICE, lambda: make(ALICE, secret, 1))
    as_user(BOB, lambda: find(BOB, secret, b"by %d" % ALICE, 1))
    as_user(BOB, lambda: make(BOB, other, 2))
    as_user(ALICE, lambda: refuse(ALICE, secret, 2, "not made with the key in use"))
    # now made anew by Alice, in place of the other
    as_user(BOB, lambda: find(BOB, secret, b"my own program", 2))


def test_a_default_directory_of_another_user_is_replaced_by_ones_own(
    place: Path, as_user: AsUser, monkeypatch: pytest.MonkeyPatch, shared: Path
) -> None:
    from torch_neuronx_cache import settings as module

    places = {module.NEFF_VARIABLE: "neff_cache", module.HLO_VARIABLE: "hlo_cache", module.LOCAL_VARIABLE: "local"}
    defaults = {variable: str(shared / name) for variable, name in places.items()}  # not the machine's own
    monkeypatch.setattr(module, "_DEFAULTS", module._DEFAULTS | defaults)
    as_user(BOB, lambda: (shared / "neff_cache").mkdir())

    def check() -> None:
        with pytest.warns(CacheWarning, match=f"belongs to user {BOB}, so {shared}/neff_cache_{ALICE} is used") as said:
            settings = Settings.from_environ({})
        assert len([w for w in said if "neff_cache" in str(w.message)]) == 1
        assert settings.neff_url == f"{shared}/neff_cache_{ALICE}"
        Settings.from_environ({})  # said once
        cache = Cache.open(settings.neff_url, replace(settings, local_directory=str(shared / "alices")))
        assert cache.get_or_create(CacheKey.of("neff", {"a": 1}), lambda: b"x") == b"x"
        assert stat.S_IMODE(os.stat(settings.neff_url).st_mode) == 0o700

    as_user(ALICE, check)


def test_locks_of_two_users_do_not_meet(shared: Path, key: CacheKey, as_user: AsUser) -> None:
    """A lock directory of another user is not used; the work goes on with one warning."""
    as_user(BOB, lambda: (shared / "local").mkdir(mode=0o755))

    def work() -> None:
        settings = Settings(str(shared / "alices"), "", str(shared / "local"))
        with pytest.warns(CacheWarning, match="TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR"):
            assert Cache.open(settings.neff_url, settings).get_or_create(key, lambda: b"x") == b"x"

    as_user(ALICE, work)


def test_a_store_that_can_only_be_read_is_read(shared: Path, key_of: Callable[..., CacheKey], as_user: AsUser) -> None:
    """A warm store that an administrator prepared: hits without a word, and one warning for the first new entry."""
    store = shared / "warm"
    as_user(ALICE, lambda: store.mkdir(mode=0o755))
    as_user(ALICE, put_as(shared, store, ALICE, key_of(1)))

    def use() -> None:
        cache, events = open_as(shared, store, BOB, trust=Trust(owners=frozenset({ALICE})))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert cache.get_or_create(key_of(1), lambda: b"never") == b"alice's program"
        with pytest.warns(CacheWarning, match="others will compile again"):
            assert cache.get_or_create(key_of(2), lambda: b"own") == b"own"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert cache.get_or_create(key_of(3), lambda: b"own") == b"own"
        outcomes = [event.outcome for event in events]
        assert outcomes.count(Outcome.STORE_ERROR) == 2

    as_user(BOB, use)
