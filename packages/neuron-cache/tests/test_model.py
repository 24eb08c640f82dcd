"""The cache against a model of it, through random histories of several processes' worth of openings."""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from torch_neuronx_cache import Cache, CacheEvent, CacheKey, Limits, Outcome, Settings, Verdict
from torch_neuronx_cache.stores.file import FileStore

NUMBERS = st.integers(0, 5)
OPENINGS = st.integers(0, 2)


def key_of(number: int) -> CacheKey:
    return CacheKey.of("neff", {"stablehlo": b"%d" % number, "target": "trn2"})


@dataclass
class Stored:
    content: bytes
    used: int
    damaged: bool = False


class CacheModel(RuleBasedStateMachine):
    """Three openings of one store; the model knows contents, order of use, who holds what, who has what in memory."""

    @initialize(memory=st.sampled_from([0, 300, 2**20]))
    def open(self, memory: int) -> None:
        self.place = Path(
            tempfile.mkdtemp(prefix="cache-model-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        )
        self.settings = Settings(str(self.place / "neff"), "", str(self.place / "local"), memory_bytes=memory)
        self.events: list[CacheEvent] = []
        self.caches = [self.open_cache() for _ in range(3)]
        self.stored: dict[int, Stored] = {}
        self.held: list[set[int]] = [set(), set(), set()]
        self.may_remember: list[dict[int, bytes]] = [{}, {}, {}]
        self.clock = 0
        self.made = 0

    def open_cache(self) -> Cache:
        cache = Cache.open(self.settings.neff_url, self.settings, observers=[lambda event: self.events.append(event)])
        assert isinstance(cache.store, FileStore)
        cache.store.durable = False
        cache.store.use_interval = 0
        return cache

    def teardown(self) -> None:
        if hasattr(self, "place"):
            for cache in self.caches:
                cache.close()
            shutil.rmtree(self.place)

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    def file(self, number: int) -> Path:
        digest = key_of(number).digest
        return self.place / "neff" / digest[:2] / digest

    def check(self, opening: int, number: int, content: bytes | None) -> None:
        """A lookup may answer from memory with what this opening once had, else with what is stored."""
        (event,) = [e for e in self.events if e.outcome in (Outcome.HIT, Outcome.MISS)]
        assert (event.outcome is Outcome.HIT) == (content is not None)
        entry = self.stored.get(number)
        self.held[opening].add(number)
        if event.layer == "memory":
            assert content == self.may_remember[opening][number]
        elif event.layer == "store":
            assert entry is not None
            assert not entry.damaged
            assert content == entry.content
            entry.used = self.tick()
        else:
            assert entry is None or entry.damaged
            if entry is not None:
                assert Outcome.CORRUPT in {e.outcome for e in self.events}
                del self.stored[number]
        if content is not None:
            self.may_remember[opening][number] = content

    @rule(opening=OPENINGS, number=NUMBERS)
    def get(self, opening: int, number: int) -> None:
        self.events.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            content = self.caches[opening].get(key_of(number))
        self.check(opening, number, content)

    @rule(opening=OPENINGS, number=NUMBERS, size=st.integers(0, 200))
    def put(self, opening: int, number: int, size: int) -> None:
        content = os.urandom(size)
        assert self.caches[opening].put(key_of(number), content)
        self.stored[number] = Stored(content, self.tick())
        self.held[opening].add(number)
        self.may_remember[opening][number] = content

    @rule(opening=OPENINGS, number=NUMBERS)
    def get_or_create(self, opening: int, number: int) -> None:
        self.events.clear()
        self.made += 1
        fresh = b"made %d" % self.made
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            content = self.caches[opening].get_or_create(key_of(number), lambda: fresh)
        if content == fresh:
            self.check(opening, number, None)
            self.stored[number] = Stored(content, self.tick())
            self.may_remember[opening][number] = content
        else:
            self.check(opening, number, content)

    @rule(number=NUMBERS, at=st.floats(0, 1, exclude_max=True), flip=st.integers(0, 255))
    def damage(self, number: int, at: float, flip: int) -> None:
        """Flip bits of one byte, or cut there."""
        entry = self.stored.get(number)
        if entry is None or entry.damaged:
            return
        good = self.file(number).read_bytes()
        place = int(at * len(good))
        bad = good[:place] + bytes([good[place] ^ flip]) + good[place + 1 :] if flip else good[:place]
        self.file(number).write_bytes(bad)
        os.utime(self.file(number))
        entry.damaged = True
        entry.used = self.tick()

    @rule(opening=OPENINGS, number=NUMBERS)
    def release(self, opening: int, number: int) -> None:
        self.caches[opening].release(key_of(number))
        self.held[opening].discard(number)
        self.may_remember[opening].pop(number, None)

    @rule(opening=OPENINGS)
    def reopen(self, opening: int) -> None:
        """As if the process ended and another began."""
        self.caches[opening].close()
        self.caches[opening] = self.open_cache()
        self.held[opening] = set()
        self.may_remember[opening] = {}

    @rule(opening=OPENINGS, repair=st.booleans())
    def verify(self, opening: int, repair: bool) -> None:
        found = {checked.digest: checked.verdict for checked in self.caches[opening].verify(repair=repair)}
        assert found == {
            key_of(number).digest: Verdict.CORRUPT if entry.damaged else Verdict.GOOD
            for number, entry in self.stored.items()
        }
        if repair:
            self.stored = {number: entry for number, entry in self.stored.items() if not entry.damaged}

    @rule(opening=OPENINGS, share=st.floats(0, 1))
    def prune(self, opening: int, share: float) -> None:
        sizes = {number: self.file(number).stat().st_size for number in self.stored}
        bound = int(share * sum(sizes.values()))
        total = sum(sizes.values())
        expected = []
        for number in sorted(self.stored, key=lambda number: self.stored[number].used):
            if total <= bound:
                break
            total -= sizes[number]
            expected.append(number)
        held = set().union(*self.held)
        expected = [number for number in expected if number not in held]
        removed = self.caches[opening].prune(Limits(max_bytes=bound))
        assert [blob.digest for blob in removed] == [key_of(number).digest for number in expected]
        for number in expected:
            del self.stored[number]
            self.may_remember[opening].pop(number, None)

    @precondition(lambda self: len(self.stored) > 3)
    @rule(opening=OPENINGS)
    def clear(self, opening: int) -> None:
        self.held[opening] = set()
        self.may_remember[opening] = {}
        held = set().union(*self.held)
        gone = [number for number in self.stored if number not in held]
        assert self.caches[opening].clear() == (len(gone), len(self.stored) - len(gone))
        self.stored = {number: entry for number, entry in self.stored.items() if number in held}

    @invariant()
    def the_listing_is_the_model(self) -> None:
        if not hasattr(self, "caches"):
            return
        stats = self.caches[0].stats()
        assert stats.entries == len(self.stored)


CacheModel.TestCase.settings = settings(
    max_examples=100, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestCacheModel = CacheModel.TestCase
