from __future__ import annotations

import json
import string
from collections.abc import Callable
from typing import Any

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from torch_neuronx_cache import CacheKey, diff, neff_key
from torch_neuronx_cache.errors import KeyPartError

NAMES = st.text(string.ascii_lowercase + "_é", min_size=1, max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
VALUES = st.binary(max_size=40) | st.text(max_size=20) | JSON
PARTS = st.dictionaries(NAMES, VALUES, max_size=6)


def test_the_recipe_of_version_1_is_what_its_documentation_says() -> None:
    key = CacheKey.of("neff", {"target": "trn2", "config": {"b": 1, "a": [True]}, "code": b"\x00\xff"})

    def part(data: bytes) -> bytes:
        return blake3(data, derive_key_context="torch-neuronx-cache v1 part").digest()

    def counted(data: bytes) -> bytes:
        return len(data).to_bytes(4, "little") + data

    expected = blake3(
        counted(b"neff")
        + (3).to_bytes(4, "little")
        + (counted(b"code") + part(b"b\x00\xff"))
        + (counted(b"config") + part(b'j{"a":[true],"b":1}'))
        + (counted(b"target") + part(b"ttrn2")),
        derive_key_context="torch-neuronx-cache v1 key",
    )
    assert key.digest == expected.hexdigest()


def test_a_digest_of_version_1_never_changes() -> None:
    key = CacheKey.of("neff", {"stablehlo": b"module {}", "compiler": "emulator 0.1", "config": {"opt": 2}})
    assert key.digest == "499529f78f28136bfc557963c01e7f50b6c337e315c75f35be72478cdda6f11e"


@given(PARTS)
def test_the_order_of_naming_does_not_change_the_digest(parts: dict[str, Any]) -> None:
    backwards = dict(reversed(parts.items()))
    assert CacheKey.of("neff", parts) == CacheKey.of("neff", backwards)


@given(PARTS)
def test_a_key_survives_its_json_form(parts: dict[str, Any]) -> None:
    key = CacheKey.of("neff", parts)
    again = CacheKey.from_json(json.loads(json.dumps(key.to_json())))
    assert again == key
    assert hash(again) == hash(key)
    assert again.parts == key.parts


@given(PARTS, PARTS)
def test_keys_are_equal_exactly_when_nothing_differs(one: dict[str, Any], other: dict[str, Any]) -> None:
    a, b = CacheKey.of("neff", one), CacheKey.of("neff", other)
    differences = diff(a, b)
    assert (a == b) == (not differences)
    assert {difference.name for difference in differences} == {
        part.name for part in (*a, *b) if not (part in a.parts and part in b.parts)
    }
    for difference in differences:
        assert difference.name in difference.describe()


@pytest.mark.parametrize(
    ("one", "other"),
    [(b"1", "1"), ("1", 1), (1, True), ("null", None), ({"a": 1}, '{"a":1}'), ([1, 2], [2, 1]), (1, 1.0)],
)
def test_values_of_different_kinds_are_different_parts(one: Any, other: Any) -> None:
    assert CacheKey.of("neff", {"p": one}) != CacheKey.of("neff", {"p": other})


@pytest.mark.parametrize("value", [bytearray(b"abc"), memoryview(b"abc")])
def test_buffers_count_as_their_bytes(value: Any) -> None:
    assert CacheKey.of("neff", {"p": value}) == CacheKey.of("neff", {"p": b"abc"})


def test_the_kind_and_the_borders_between_parts_count() -> None:
    assert CacheKey.of("neff", {"a": "b"}) != CacheKey.of("hlo", {"a": "b"})
    assert CacheKey.of("neff", {"ab": "c"}) != CacheKey.of("neff", {"a": "bc"})


@pytest.mark.parametrize("value", [object(), {1: "a"}, {"a": {2: 3}}, [{3: 4}], {"a", "b"}, float("nan"), "\ud800", 1j])
def test_a_value_without_a_canonical_form_is_refused_by_name(value: Any) -> None:
    with pytest.raises(KeyPartError, match="Key part 'config'"):
        CacheKey.of("neff", {"config": value})


def test_a_name_used_twice_is_refused() -> None:
    part = CacheKey.of("neff", {"a": 1})["a"]
    with pytest.raises(KeyPartError, match="used twice: a"):
        CacheKey("neff", (part, part))


def test_another_recipe_is_refused(key: CacheKey) -> None:
    with pytest.raises(ValueError, match="recipe 2"):
        CacheKey.from_json(key.to_json() | {"recipe": 2})


def test_differences_go_down_to_the_member(key_of: Callable[..., CacheKey]) -> None:
    before = key_of(compiler_config={"opt_level": 1, "nested": {"a": 1, "b": 2}, "old": 0})
    after = key_of(compiler_config={"opt_level": 2, "nested": {"a": 1, "b": 3}, "new": 0}, compiler="emulator 0.2")
    assert [difference.describe() for difference in diff(before, after)] == [
        "compiler: emulator 0.1 -> emulator 0.2",
        "compiler_config.nested.b: 2 -> 3; compiler_config.new: nothing -> 0; compiler_config.old: 0 -> nothing; "
        "compiler_config.opt_level: 1 -> 2",
    ]


def test_long_and_binary_values_are_kept_as_digests_only() -> None:
    before, after = (CacheKey.of("neff", {"code": code, "text": "x" * 5000}) for code in (b"a", b"bb"))
    assert before["code"].value is None
    assert before["text"].value is None
    (difference,) = diff(before, after)
    assert difference.describe().startswith("code: 1 bytes, ")


def test_a_part_on_one_side_only_is_named(key_of: Callable[..., CacheKey]) -> None:
    plain, with_host = key_of(), key_of(host_features="avx512")
    assert diff(plain, with_host)[0].describe() == "host_features: only in the new key (avx512)"
    assert diff(with_host, plain)[0].describe() == "host_features: only in the old key (avx512)"
    assert diff(plain, CacheKey("hlo", plain.parts))[0].describe() == "kind: neff -> hlo"


def test_a_neff_key_has_the_standard_parts() -> None:
    key = neff_key(stablehlo=b"m", compiler_config={}, compiler="c 1", target="trn2", kernels={"k": "f1"})
    assert [part.name for part in key] == ["target", "compiler", "compiler_config", "stablehlo", "kernels"]
    assert str(key) == key.digest
    with pytest.raises(KeyError):
        key["host_features"]
