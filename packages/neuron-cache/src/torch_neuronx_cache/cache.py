"""The cache: keys in, contents out; a memory layer, a store behind it, and a lock for each key that is being made."""

import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum

from blake3 import blake3

from torch_neuronx_cache.bounds import SLACK, Limits, victims
from torch_neuronx_cache.entries import Entry, Header, encode, read_content, read_entry, read_header
from torch_neuronx_cache.errors import (
    CacheConfigurationError,
    InvalidEntryError,
    LockTimeoutError,
    StoreError,
    StoreRefusedError,
    UnknownEntryError,
    UntrustedEntryError,
)
from torch_neuronx_cache.events import CacheEvent, Layer, Observer, Outcome
from torch_neuronx_cache.keys import CacheKey, PartValue
from torch_neuronx_cache.locks import Acquired, KeyLocks
from torch_neuronx_cache.memory import MemoryLayer
from torch_neuronx_cache.notices import say_once
from torch_neuronx_cache.settings import Settings
from torch_neuronx_cache.signing import Signer
from torch_neuronx_cache.stores.file import FileStore
from torch_neuronx_cache.stores.interface import Store, StoredBlob, StoreOptions
from torch_neuronx_cache.stores.read_through import ReadThroughStore
from torch_neuronx_cache.stores.registry import open_store, plugin_manager
from torch_neuronx_cache.why import Explanation, explain

Labels = Mapping[str, str]


class Verdict(StrEnum):
    """What a check of a stored entry found."""

    GOOD = "good"
    CORRUPT = "corrupt"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Checked:
    """One entry after a check of all its bytes."""

    digest: str
    verdict: Verdict
    reason: str = ""
    kept_at: str | None = None
    """Where a corrupt entry was moved, after a repair."""


@dataclass(frozen=True, slots=True)
class StoreStats:
    """Totals of a store."""

    entries: int
    size: int
    """Bytes."""
    hits: int
    """Reads of entries since they were stored, by all processes; hits in the memory layer do not count."""
    oldest: float | None
    newest: float | None
    """Seconds since 1970."""


class Cache:
    """A content-addressed cache. Safe to use from several threads, and to share by fork.

    ``store=None`` is a cache that is switched off: nothing is looked up, every ``make`` runs. Without ``locks`` two
    processes may make the same thing at once.
    """

    def __init__(
        self,
        store: Store | None,
        *,
        locks: KeyLocks | None = None,
        memory_bytes: int = 64 * 2**20,
        limits: Limits | None = None,
        signer: Signer | None = None,
        observers: Iterable[Observer] = (),
    ) -> None:
        self.store = store
        self.locks = locks
        self.limits = limits or Limits()
        self.signer = signer
        self.observers: tuple[Observer, ...] = tuple(observers)
        self._memory = MemoryLayer(memory_bytes)
        self._url = store.url if store else ""
        self._hooks = plugin_manager().hook.torch_neuronx_cache_event
        self._prune_at: float | None = None
        self._stored_bytes = 0
        if store:
            weakref.finalize(self, store.close)

    @classmethod
    def open(
        cls,
        url: str | None,
        settings: Settings,
        *,
        observers: Iterable[Observer] = (),
        read_through: bool = True,
    ) -> "Cache":
        """Open the cache at a URL or a path with the given settings; ``None`` for one that is switched off.

        A remote store gets a local one in front, in the local directory, unless ``read_through`` is false.
        """
        if url is None:
            return cls(None, observers=observers)
        signer = Signer.from_file(settings.signing_key_file) if settings.signing_key_file else None
        trust = replace(settings.trust, signed=signer is not None)
        store = open_store(url, StoreOptions(trust))
        if store.is_remote and read_through:
            place = f"{settings.local_directory}/read-through/{blake3(store.url.encode()).hexdigest()[:16]}"
            store = ReadThroughStore(FileStore(place), store)
        locks = KeyLocks(settings.local_directory, store.url, settings.lock_timeout)
        return cls(
            store,
            locks=locks,
            memory_bytes=settings.memory_bytes,
            limits=settings.limits,
            signer=signer,
            observers=observers,
        )

    @staticmethod
    def key(kind: str, parts: Mapping[str, PartValue]) -> CacheKey:
        """Build the key of named values: for callers that got this cache by the hook and import nothing of it.

        Raises :class:`KeyPartError` for a value without a canonical form.
        """
        return CacheKey.of(kind, parts)

    # ---- lookups

    def get(self, key: CacheKey, labels: Labels | None = None) -> bytes | None:
        """Return the content stored under a key, or None."""
        start = time.perf_counter()
        if self.store is None:
            self._emit(Outcome.DISABLED, key, start=start, labels=labels)
            return None
        content = self._look(key, labels, start)
        if content is None:
            self._emit_miss(key, labels, start)
        return content

    def put(self, key: CacheKey, content: bytes, labels: Labels | None = None) -> bool:
        """Store a content; return whether it was persisted.

        A store that cannot be written (no space, read-only) costs one warning; the content then lives in memory only.
        """
        if self.store is None:
            return False
        if not isinstance(content, bytes):
            raise TypeError(f"A cached content must be bytes, not {type(content).__name__}.")
        start = time.perf_counter()
        self._memory.put(key.digest, content)
        blob = encode(key, content, labels, self.signer)
        try:
            self.store.hold(key.digest)
            self.store.write(key.digest, blob)
        except StoreError as error:
            self._store_failed(error, key, labels, "New entries are not kept there, so others will compile again.")
            return False
        self._emit(Outcome.STORED, key, start=start, size=len(content), labels=labels)
        self._keep_limits(len(blob))
        return True

    def get_or_create(self, key: CacheKey, make: Callable[[], bytes], labels: Labels | None = None) -> bytes:
        """Return the content of a key; make and store it when there is none.

        Of several processes that want one key at once, one makes it and the others wait for it. Whatever ``make``
        raises passes through, and nothing is stored. Raises :class:`LockTimeoutError` when another process holds the
        key's lock for too long; a store or a lock directory that cannot be used costs a warning, not the work.
        """
        start = time.perf_counter()
        if self.store is None:
            self._emit(Outcome.DISABLED, key, start=start, labels=labels)
            return make()
        content = self._look(key, labels, start, leave_bad=True)
        if content is not None:
            return content
        with self._locked(key) as acquired:
            if acquired.waited:
                self._emit(Outcome.WAITED, key, seconds=acquired.waited, labels=labels)
            content = self._look(key, labels, start, locked=True)
            if content is None:
                self._emit_miss(key, labels, start)
                content = make()
                self.put(key, content, labels)
        return content

    def release(self, key: CacheKey) -> None:
        """Let eviction remove the entry, and forget it here; the process does not rely on it any more."""
        self._memory.drop(key.digest)
        if self.store:
            self.store.release(key.digest)

    def forget_memory(self) -> None:
        """Empty the memory layer."""
        self._memory.clear()

    def close(self) -> None:
        """Release every hold and empty the memory layer. The cache may be used again."""
        self._memory.clear()
        if self.store:
            self.store.close()

    # ---- explanations and listings

    def why(self, key: CacheKey, labels: Labels | None = None) -> Explanation:
        """Compare a key with the nearest entry and name the parts that differ. Reads every header in the store."""
        store = self._need_store()
        blob = store.peek(key.digest)
        if blob:
            blob.close()
        return explain(key, (header for _, header in self.headers()), labels, present=blob is not None)

    def headers(self) -> Iterator[tuple[StoredBlob, Header]]:
        """List the entries whose headers can be read; the others are for :meth:`verify`."""
        for blob in self._need_store().scan():
            try:
                header = self._read_header(blob.digest)
            except (InvalidEntryError, StoreRefusedError):
                continue
            if header:
                yield blob, header

    def find(self, words: str) -> list[tuple[StoredBlob, Header]]:
        """Return the entries whose digest starts with ``words``, or whose graph has that name, latest first.

        Raises :class:`UnknownEntryError` when there are none.
        """
        found = [
            (blob, header)
            for blob, header in self.headers()
            if blob.digest.startswith(words) or header.labels.get("graph") == words
        ]
        if not found:
            raise UnknownEntryError(
                f"{self._url} holds neither a key that starts with {words!r} nor a graph of that name."
            )
        return sorted(found, key=lambda pair: -pair[1].made.time)

    def load(self, digest: str) -> Entry | None:
        """Read and check one entry by its digest, without counting a use. Raises what :meth:`verify` reports."""
        blob = self._need_store().open(digest)
        if blob is None:
            return None
        with blob:
            return read_entry(blob, digest, self.signer)

    def stats(self) -> StoreStats:
        """Add up the store."""
        blobs = list(self._need_store().scan())
        created = [blob.created for blob in blobs]
        return StoreStats(
            len(blobs),
            sum(blob.size for blob in blobs),
            sum(blob.hits for blob in blobs),
            min(created, default=None),
            max(created, default=None),
        )

    # ---- upkeep

    def verify(self, *, repair: bool = False) -> Iterator[Checked]:
        """Check every byte of every entry. With ``repair``, move corrupt ones aside and sweep what dead processes left.

        Raises :class:`StoreRefusedError` when the directory itself is not trusted.
        """
        store = self._need_store()
        for blob in store.scan():
            checked = self._check(blob.digest)
            if checked is None:
                continue
            if repair and checked.verdict is Verdict.CORRUPT:
                kept_at = self._set_aside(blob.digest, checked.reason)
                checked = replace(checked, kept_at=kept_at)
            yield checked
        if repair:
            store.sweep()

    def prune(
        self,
        limits: Limits | None = None,
        *,
        choose: Callable[[Header], bool] | None = None,
        dry_run: bool = False,
    ) -> list[StoredBlob]:
        """Remove what exceeds the limits (the cache's own by default), and what ``choose`` picks; return it.

        Entries that a running process holds stay.
        """
        store = self._need_store().bounded
        now = time.time()
        listed = list(store.scan())
        chosen = {blob.digest: blob for blob in victims(listed, limits or self.limits, now)}
        if choose:
            chosen.update({blob.digest: blob for blob, header in self.headers() if choose(header)})
        if dry_run:
            return list(chosen.values())
        removed = self._evict(store, chosen)
        store.sweep()
        if self.locks:
            self.locks.sweep()
        return removed

    def clear(self, *, force: bool = False) -> tuple[int, int]:
        """Remove all entries; return how many went and how many stay because a process holds them.

        With ``force`` those go too.
        """
        store = self._need_store()
        self._memory.clear()
        store.close()  # what this process holds is no reason against its own wish
        digests = [blob.digest for blob in store.scan()]
        gone = sum(store.remove(digest) for digest in digests) if force else len(store.evict(digests))
        store.sweep()
        return gone, len(digests) - gone

    # ---- how a lookup goes

    def _look(
        self, key: CacheKey, labels: Labels | None, start: float, *, leave_bad: bool = False, locked: bool = False
    ) -> bytes | None:
        """Look in memory, then in the store. A bad entry is left for whoever holds the lock, or set aside."""
        content = self._memory.get(key.digest)
        if content is not None:
            self._emit(Outcome.HIT, key, layer=Layer.MEMORY, start=start, size=len(content), labels=labels)
            return content
        try:
            content = self._read(key, labels, leave_bad=leave_bad, locked=locked)
        except StoreError as error:
            if not leave_bad:
                self._store_failed(error, key, labels, "It is not read, so what it holds is compiled again.")
            return None
        if content is None:
            return None
        self._need_store().record_use(key.digest)
        self._memory.put(key.digest, content)
        self._emit(Outcome.HIT, key, layer=Layer.STORE, start=start, size=len(content), labels=labels)
        return content

    def _read(self, key: CacheKey, labels: Labels | None, *, leave_bad: bool, locked: bool) -> bytes | None:
        """Read from the store; once more after a damaged entry was set aside, for a good copy may lie behind it."""
        store = self._need_store()
        store.hold(key.digest)
        for may_retry in (True, False):
            blob = store.open(key.digest)
            if blob is None:
                return None
            try:
                with blob:
                    return read_content(blob, key.digest, self.signer)
            except InvalidEntryError as error:
                if leave_bad or not may_retry:
                    return None
                self._entry_failed(error, key, labels, locked=locked)
                if isinstance(error, UntrustedEntryError):
                    return None
        return None

    @contextmanager
    def _locked(self, key: CacheKey) -> Iterator[Acquired]:
        """Hold the key's lock; where locks cannot be had or nothing can be stored, go on without one."""
        if self.locks is None or not self._need_store().can_write():
            yield Acquired(0.0)
            return
        lock = self.locks.acquire(key.digest)
        try:
            acquired = lock.__enter__()
        except StoreError as error:
            say_once(
                f"locks {self.locks.directory}",
                f"{error} The cache goes on without locks: processes may compile the same graph at once.",
            )
            yield Acquired(0.0)
            return
        try:
            yield acquired
        finally:
            lock.__exit__(None, None, None)

    def _entry_failed(self, error: InvalidEntryError, key: CacheKey, labels: Labels | None, *, locked: bool) -> None:
        if isinstance(error, UntrustedEntryError):
            self._emit(Outcome.REFUSED, key, labels=labels, detail=str(error))
            say_once(
                f"untrusted {self._url}",
                f"The entry {key.digest[:12]} in {self._url} is not loaded: {error}. It is compiled again.",
            )
            return
        kept_at = self._set_aside(key.digest, str(error), locked=locked)
        where = f"moved to {kept_at}" if kept_at else "taken out of use"
        self._emit(Outcome.CORRUPT, key, labels=labels, detail=str(error))
        say_once(
            f"corrupt {self._url} {key.digest}",
            f"The entry {key.digest[:12]} in {self._url} is damaged: {error}. It was {where} and is compiled again.",
        )

    def _set_aside(self, digest: str, reason: str, *, locked: bool = False) -> str | None:
        """Move a bad entry away under the key's lock, so that a good one that just replaced it is left alone."""
        store = self._need_store()
        try:
            if locked or self.locks is None:
                return store.set_aside(digest, reason)
            with self.locks.acquire(digest, timeout=0):
                checked = self._check(digest)
                if checked and checked.verdict is Verdict.CORRUPT:
                    return store.set_aside(digest, reason)
        except LockTimeoutError:
            return None  # whoever holds the lock is about to replace the entry
        except StoreError as error:
            say_once(f"set aside {self._url}", f"A damaged entry stays where it is, unused: {error}")
        return None

    def _check(self, digest: str) -> Checked | None:
        try:
            entry = self.load(digest)
        except (StoreRefusedError, UntrustedEntryError) as error:
            return Checked(digest, Verdict.REFUSED, str(error))
        except InvalidEntryError as error:
            return Checked(digest, Verdict.CORRUPT, str(error))
        return Checked(digest, Verdict.GOOD) if entry else None

    def _read_header(self, digest: str) -> Header | None:
        blob = self._need_store().peek(digest)
        if blob is None:
            return None
        with blob:
            return read_header(blob, digest, self.signer)

    def _keep_limits(self, added: int) -> None:
        """Prune when this process's estimate of the store's size exceeds the bound; the estimate is renewed then."""
        if self.limits.max_bytes is None and self.limits.max_age is None:
            return
        self._stored_bytes += added
        if self._prune_at is not None and self._stored_bytes < self._prune_at:
            return
        store = self._need_store().bounded
        try:
            listed = list(store.scan())
            chosen = {blob.digest: blob for blob in victims(listed, self.limits, time.time(), slack=SLACK)}
            removed = self._evict(store, chosen) if chosen else []
        except StoreError as error:
            say_once(f"prune {self._url}", f"The store cannot be kept within its limits: {error}")
            listed, removed = [], []
        self._stored_bytes = sum(blob.size for blob in listed) - sum(blob.size for blob in removed)
        bound = self.limits.max_bytes or 0
        # Beyond the bound only held entries are left: ask again when the store has grown, not at every new entry.
        self._prune_at = max(bound, self._stored_bytes + bound * (1 - SLACK)) if bound else self._stored_bytes + 2**28

    def _evict(self, store: Store, chosen: Mapping[str, StoredBlob]) -> list[StoredBlob]:
        removed = [chosen[digest] for digest in store.evict(chosen)]
        for blob in removed:
            self._memory.drop(blob.digest)
            self._send(CacheEvent(Outcome.EVICTED, "", blob.digest, self._url, size=blob.size))
        return removed

    # ---- telling

    def _store_failed(self, error: StoreError, key: CacheKey, labels: Labels | None, consequence: str) -> None:
        outcome = Outcome.STORE_ERROR
        if isinstance(error, StoreRefusedError):
            outcome = Outcome.REFUSED
        elif self.store and self.store.is_remote:
            outcome = Outcome.REMOTE_ERROR
        self._emit(outcome, key, labels=labels, detail=str(error))
        say_once(f"{outcome} {self._url}", f"The cache {self._url}: {error} {consequence}")

    def _emit_miss(self, key: CacheKey, labels: Labels | None, start: float) -> None:
        self._send(
            CacheEvent(
                Outcome.MISS,
                key.kind,
                key.digest,
                self._url,
                seconds=time.perf_counter() - start,
                labels=labels or {},
                explain=lambda: self._explain_miss(key, labels),
            )
        )

    def _explain_miss(self, key: CacheKey, labels: Labels | None) -> Explanation | None:
        try:
            return self.why(key, labels)
        except StoreError:  # the failed lookup has told about it
            return None

    def _emit(
        self,
        outcome: Outcome,
        key: CacheKey,
        *,
        layer: Layer | None = None,
        start: float | None = None,
        seconds: float = 0.0,
        size: int = 0,
        labels: Labels | None = None,
        detail: str = "",
    ) -> None:
        if start is not None:
            seconds = time.perf_counter() - start
        self._send(CacheEvent(outcome, key.kind, key.digest, self._url, layer, seconds, size, labels or {}, detail))

    def _send(self, event: CacheEvent) -> None:
        """Hand an event to every observer; one that raises is named once and does not disturb the work."""
        for observer in self.observers:
            try:
                observer(event)
            except Exception as error:
                say_once(f"observer {observer!r}", f"The cache observer {observer!r} raised {error!r} and was ignored.")
        if not self._hooks.get_hookimpls():
            return
        try:
            self._hooks(event=event)
        except Exception as error:
            say_once(f"hook {error!r}", f"A plugin's torch_neuronx_cache_event raised {error!r} and was ignored.")

    def _need_store(self) -> Store:
        if self.store is None:
            raise CacheConfigurationError("The cache is switched off, so there is no store to look into.")
        return self.store


def neff_cache(settings: Settings | None = None, *, observers: Iterable[Observer] = ()) -> Cache:
    """Open the NEFF cache that the environment configures; one that is switched off where it says so."""
    settings = settings or Settings.from_environ()
    return Cache.open(None if settings.disabled else settings.neff_url, settings, observers=observers)


def hlo_cache(settings: Settings | None = None, *, observers: Iterable[Observer] = ()) -> Cache:
    """Open the HLO cache that the environment configures."""
    settings = settings or Settings.from_environ()
    return Cache.open(settings.hlo_url, settings, observers=observers)
