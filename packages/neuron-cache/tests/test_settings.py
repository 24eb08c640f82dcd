from __future__ import annotations

import os
from pathlib import Path

import pytest

from torch_neuronx_cache import Cache, CacheKey, Limits, Settings, Trust, hlo_cache, neff_cache
from torch_neuronx_cache import settings as module
from torch_neuronx_cache.errors import CacheConfigurationError
from torch_neuronx_cache.settings import VARIABLES
from torch_neuronx_cache.stores.file import FileStore


@pytest.fixture(autouse=True)
def _defaults_elsewhere(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The defaults, moved from /tmp to a place of the test's own."""
    moved = {
        name: default.replace("/tmp", str(place)) if default.startswith("/tmp/") else default
        for name, default in module._DEFAULTS.items()
    }
    monkeypatch.setattr(module, "_DEFAULTS", moved)


def test_the_defaults_are_the_documented_ones() -> None:
    assert {variable.name: variable.default for variable in VARIABLES if variable.default} == {
        "TORCH_NEURONX_NEFF_CACHE_DIR": "/tmp/neff_cache",
        "TORCH_NEURONX_HLO_CACHE_DIR": "/tmp/hlo_cache",
        "TORCH_NEURONX_NEFF_DISABLE_CACHE": "False",
        "TORCH_NEURONX_DISABLE_NEFF_CACHE": "False",
        "TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR": "/tmp/local_cache",
        "TORCH_NEURONX_NEFF_CACHE_LOCK_TIMEOUT": "1200",
        "TORCH_NEURONX_CACHE_MEMORY_SIZE": "64M",
    }


def test_nothing_set(place: Path) -> None:
    settings = Settings.from_environ({})
    assert settings == Settings(f"{place}/neff_cache", f"{place}/hlo_cache", f"{place}/local_cache")
    assert (settings.lock_timeout, settings.memory_bytes, settings.disabled) == (1200, 2**26, False)


def test_everything_set() -> None:
    settings = Settings.from_environ(
        {
            "TORCH_NEURONX_NEFF_CACHE_DIR": "s3://bucket/neff",
            "TORCH_NEURONX_HLO_CACHE_DIR": "~/hlo",
            "TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR": "/run/locks",
            "TORCH_NEURONX_NEFF_DISABLE_CACHE": "yes",
            "TORCH_NEURONX_NEFF_CACHE_LOCK_TIMEOUT": "7",
            "TORCH_NEURONX_CACHE_TRUST": "root, 1234",
            "TORCH_NEURONX_CACHE_SIGNING_KEY_FILE": "/etc/key",
            "TORCH_NEURONX_CACHE_MAX_SIZE": "10G",
            "TORCH_NEURONX_CACHE_MAX_AGE": "30d",
            "TORCH_NEURONX_CACHE_MEMORY_SIZE": "0",
        }
    )
    assert settings == Settings(
        "s3://bucket/neff",
        os.path.expanduser("~/hlo"),
        "/run/locks",
        disabled=True,
        lock_timeout=7,
        trust=Trust(frozenset({0, 1234}), signed=True),
        signing_key_file="/etc/key",
        limits=Limits(10 * 2**30, 30 * 86400.0),
        memory_bytes=0,
    )


@pytest.mark.parametrize(("text", "value"), [("1", True), ("TRUE", True), ("Yes", True), ("0", False), ("no", False)])
def test_both_spellings_switch_the_cache_off_and_the_new_one_wins(text: str, value: bool) -> None:
    new, old = "TORCH_NEURONX_NEFF_DISABLE_CACHE", "TORCH_NEURONX_DISABLE_NEFF_CACHE"
    assert Settings.from_environ({new: text}).disabled is value
    assert Settings.from_environ({old: text}).disabled is value
    assert Settings.from_environ({new: text, old: "0" if value else "1"}).disabled is value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("TORCH_NEURONX_NEFF_DISABLE_CACHE", "maybe"),
        ("TORCH_NEURONX_DISABLE_NEFF_CACHE", "2"),
        ("TORCH_NEURONX_NEFF_CACHE_LOCK_TIMEOUT", "-1"),
        ("TORCH_NEURONX_NEFF_CACHE_LOCK_TIMEOUT", "soon"),
        ("TORCH_NEURONX_CACHE_TRUST", "no-such-user-here"),
        ("TORCH_NEURONX_CACHE_MAX_SIZE", "big"),
        ("TORCH_NEURONX_CACHE_MAX_AGE", "old"),
        ("TORCH_NEURONX_CACHE_MEMORY_SIZE", "-5"),
    ],
)
def test_an_unusable_value_is_an_error_that_names_the_variable(name: str, text: str) -> None:
    with pytest.raises(CacheConfigurationError, match=name):
        Settings.from_environ({name: text})


def test_the_environment_decides_where_the_caches_are(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_NEURONX_NEFF_CACHE_DIR", str(place / "neffs"))
    key = CacheKey.of("neff", {"a": 1})
    with_store: list[Cache] = [neff_cache(), hlo_cache()]
    assert [cache.store.path for cache in with_store if isinstance(cache.store, FileStore)] == [
        str(place / "neffs"),
        str(place / "hlo_cache"),
    ]
    monkeypatch.setenv("TORCH_NEURONX_NEFF_DISABLE_CACHE", "1")
    made = iter([b"1", b"2"])
    off = neff_cache()
    assert [off.get_or_create(key, lambda: next(made)) for _ in range(2)] == [b"1", b"2"]
    assert not (place / "neffs").exists()
    assert hlo_cache().store is not None
