from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint
from types import SimpleNamespace
from typing import Any

import pluggy
import pytest

from torch_neuronx_cache import Cache, CacheEvent, CacheKey, CacheWarning, Store, hookimpl, open_store, plugin
from torch_neuronx_cache.errors import UnknownSchemeError
from torch_neuronx_cache.stores import registry
from torch_neuronx_cache.testing import StoreConformance


class DictStore(Store):
    """The least that a store can be."""

    blobs: Mapping[str, dict[str, bytes]] = {}

    def __init__(self, url: str, options: Any = None) -> None:
        super().__init__(url, options)
        self.data = self.blobs.setdefault(url, {})  # type: ignore[attr-defined]

    def read(self, digest: str) -> bytes | None:
        return self.data.get(digest)

    def write(self, digest: str, blob: bytes) -> None:
        self.data[digest] = blob

    def remove(self, digest: str) -> bool:
        return self.data.pop(digest, None) is not None

    def scan(self) -> Iterator[Any]:
        from torch_neuronx_cache import StoredBlob

        for digest, blob in list(self.data.items()):
            yield StoredBlob(digest, len(blob), 1.0, 1.0)


class DictPlugin:
    def __init__(self, *schemes: str) -> None:
        self.schemes = schemes
        self.events: list[CacheEvent] = []

    @hookimpl
    def torch_neuronx_cache_stores(self) -> Mapping[str, Any]:
        return dict.fromkeys(self.schemes, DictStore)

    @hookimpl
    def torch_neuronx_cache_event(self, event: CacheEvent) -> None:
        self.events.append(event)


class TestDictStore(StoreConformance):
    @pytest.fixture
    def open_store(self) -> Any:
        url = f"dict://{id(object())}"
        DictStore.blobs.pop(url, None)  # type: ignore[attr-defined]
        return lambda: DictStore(url)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Entry points that seem to be installed: name to what loading gives, or to what it raises."""
    points: dict[str, Any] = {}

    def load(name: str) -> Any:
        if isinstance(points[name], Exception):
            raise points[name]
        return points[name]

    def entry_points(group: str) -> list[Any]:
        assert group == "torch_neuronx_cache.plugins"
        return [
            SimpleNamespace(
                name=name,
                value=f"{name}.plugin",
                dist=SimpleNamespace(name=f"{name}-dist"),
                load=lambda name=name: load(name),
            )
            for name in points
        ]

    monkeypatch.setattr(registry, "entry_points", entry_points)
    registry.plugin_manager.cache_clear()
    yield points
    registry.plugin_manager.cache_clear()


def test_a_strangers_store_is_found_by_its_scheme_and_sees_every_event(installed: dict[str, Any]) -> None:
    installed["dict"] = found = DictPlugin("dict")
    store = open_store("dict://one")
    assert isinstance(store, DictStore)
    cache = Cache(store, memory_bytes=0)
    key = CacheKey.of("neff", {"a": 1})
    assert cache.get_or_create(key, lambda: b"x") == b"x"
    assert Cache(open_store("dict://one")).get(key) == b"x"
    assert [event.outcome for event in found.events] == ["miss", "stored", "hit"]


def test_an_unknown_scheme_names_those_that_are_known(installed: dict[str, Any]) -> None:
    installed["dict"] = DictPlugin("dict", "other")
    with pytest.raises(UnknownSchemeError, match=r"for vault://\. Known schemes: abfs, .*dict, file, .*other"):
        open_store("vault://x")


def test_two_plugins_for_one_scheme_are_named_and_one_can_be_left_out(
    installed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    installed |= {"one": DictPlugin("dict"), "two": DictPlugin("dict")}
    with pytest.raises(UnknownSchemeError, match=r"'(one|two)' and '(two|one)'"):
        open_store("dict://x")
    for names in ("two, three", "two-dist"):
        registry.plugin_manager.cache_clear()
        monkeypatch.setenv("TORCH_NEURONX_DISABLE_PLUGINS", names)
        assert isinstance(open_store("dict://x"), DictStore)
    registry.plugin_manager.cache_clear()
    monkeypatch.setenv("TORCH_NEURONX_DISABLE_PLUGINS", "all")
    with pytest.raises(UnknownSchemeError, match="for dict://"):
        open_store("dict://x")


def test_a_plugin_that_cannot_be_loaded_is_named_and_left_out(installed: dict[str, Any]) -> None:
    installed |= {"broken": ImportError("no module named vault"), "dict": DictPlugin("dict")}
    with pytest.warns(CacheWarning, match=r"'broken' \(broken.plugin\).*no module named vault"):
        assert isinstance(open_store("dict://x"), DictStore)


def test_a_plugin_whose_event_hook_raises_is_named_once(installed: dict[str, Any]) -> None:
    class Raising:
        @hookimpl
        def torch_neuronx_cache_event(self, event: CacheEvent) -> None:
            raise ValueError("counting failed")

    installed["raising"] = Raising()
    cache = Cache(DictStore("dict://events"))
    with pytest.warns(CacheWarning, match="counting failed") as said:
        cache.get_or_create(CacheKey.of("neff", {"a": 1}), lambda: b"x")
    assert len(said) == 1


def test_the_core_gets_the_hooks_and_the_caches(monkeypatch: pytest.MonkeyPatch, place: Any) -> None:
    """What the core's manager does with the plugin, done here without the core."""
    monkeypatch.setenv("TORCH_NEURONX_NEFF_CACHE_DIR", str(place / "neff"))
    monkeypatch.setenv("TORCH_NEURONX_HLO_CACHE_DIR", str(place / "hlo"))
    monkeypatch.setenv("TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR", str(place / "local"))
    manager = pluggy.PluginManager("torch_neuronx")
    manager.add_hookspecs(plugin.torch_neuronx_add_hookspecs())
    manager.register(plugin)
    manager.check_pending = lambda: None  # type: ignore[method-assign]
    events: list[CacheEvent] = []
    for kind in ("neff", "hlo"):
        cache = manager.hook.torch_neuronx_open_cache(kind=kind, observer=events.append)
        assert cache.store.path == str(place / kind)
        assert cache.get_or_create(CacheKey.of(kind, {"a": 1}), lambda: b"x") == b"x"
    assert [event.kind for event in events] == ["neff", "neff", "hlo", "hlo"]
    assert manager.hook.torch_neuronx_open_cache(kind="other", observer=None) is None


def test_nothing_imports_torch_or_the_core() -> None:
    program = """
import importlib, pkgutil, sys
import torch_neuronx_cache
for name in torch_neuronx_cache.__all__:
    getattr(torch_neuronx_cache, name)
for module in pkgutil.walk_packages(torch_neuronx_cache.__path__, "torch_neuronx_cache."):
    if not module.name.endswith(".testing"):
        importlib.import_module(module.name)
assert set(torch_neuronx_cache.__all__) <= set(dir(torch_neuronx_cache))
print([name for name in ("torch", "torch_neuronx", "numpy", "jax", "pytest") if name in sys.modules])
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_the_plugin_itself_loads_nothing_but_the_markers() -> None:
    program = "import torch_neuronx_cache.plugin, sys; print(sorted(m for m in sys.modules if 'neuronx' in m))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "['torch_neuronx_cache', 'torch_neuronx_cache.plugin']"


def test_the_entry_points_name_what_exists() -> None:
    for value in ("torch_neuronx_cache.plugin", "torch_neuronx_cache.cli:app", "torch_neuronx_cache.cli:main"):
        assert EntryPoint("name", value, "group").load() is not None
