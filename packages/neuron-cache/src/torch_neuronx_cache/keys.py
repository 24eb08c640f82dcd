"""Keys: a digest over named parts, with the parts kept so that two keys can be compared.

Recipe, version 1. Anything that changes it changes :data:`RECIPE` and with it every digest.

* *Part digest*: BLAKE3 with the derive-key context ``torch-neuronx-cache v1 part`` over one letter for the form of the
  value and then the value: ``b`` and the bytes; ``t`` and UTF-8 text; ``j`` and canonical JSON (sorted keys, no
  spaces, UTF-8, no NaN).
* *Key digest*: BLAKE3 with the context ``torch-neuronx-cache v1 key`` over the kind, the number of parts, and for each
  part in the order of the names' UTF-8 bytes its name and its 32-byte digest. Kind and names are preceded by their
  length in bytes; lengths and the number are little-endian 32-bit.

The order in which the caller names the parts is kept for display and does not change the digest.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from blake3 import blake3

from torch_neuronx_cache.errors import KeyPartError

RECIPE = 1
"""Version of the recipe above."""

PART_CONTEXT = "torch-neuronx-cache v1 part"
KEY_CONTEXT = "torch-neuronx-cache v1 key"

SHOWN_VALUE_LIMIT = 2048
"""Longest text, in characters, that a part keeps beside its digest so that a difference can be shown."""

DIGEST_LENGTH = 64
"""Hexadecimal digits in a digest."""

JsonValue = str | int | float | bool | Mapping[str, Any] | list[Any] | tuple[Any, ...] | None
PartValue = bytes | bytearray | memoryview | JsonValue


class Form(StrEnum):
    """How the value of a part became bytes; equal text and JSON are different parts."""

    BYTES = "bytes"
    TEXT = "text"
    JSON = "json"


_TAGS = {Form.BYTES: b"b", Form.TEXT: b"t", Form.JSON: b"j"}


@dataclass(frozen=True, slots=True)
class KeyPart:
    """One named ingredient of a key."""

    name: str
    form: Form
    digest: str
    size: int
    """Bytes of the encoded value."""
    value: str | None = None
    """The value itself, where it is text or JSON and short."""

    @classmethod
    def of(cls, name: str, value: PartValue) -> "KeyPart":
        """Digest one value. Raises :class:`KeyPartError` for a value that has no canonical form."""
        form, data = _encode(name, value)
        hasher = blake3(_TAGS[form], derive_key_context=PART_CONTEXT)
        hasher.update(data)
        shown = None
        if form is not Form.BYTES and len(data) <= SHOWN_VALUE_LIMIT:
            shown = bytes(data).decode()
        return cls(name, form, hasher.hexdigest(), len(data), shown)


@dataclass(frozen=True, slots=True, eq=False)
class CacheKey:
    """What one compiled thing depends on, and the digest that names it.

    Two keys are equal when their digests are. ``kind`` keeps the keys of different stores apart (``neff``, ``hlo``).
    """

    kind: str
    parts: tuple[KeyPart, ...]
    digest: str = field(init=False)
    """64 hexadecimal digits."""

    def __post_init__(self) -> None:
        """Compute the digest."""
        object.__setattr__(self, "digest", _digest(self.kind, self.parts))

    @classmethod
    def of(cls, kind: str, parts: Mapping[str, PartValue]) -> "CacheKey":
        """Build a key from named values.

        Bytes, text and JSON data are accepted. Raises :class:`KeyPartError` for anything else: a value without a
        canonical form would make a key that another process cannot compute again.
        """
        return cls(kind, tuple(KeyPart.of(name, value) for name, value in parts.items()))

    def __getitem__(self, name: str) -> KeyPart:
        """Return the part of that name, or raise KeyError."""
        for part in self.parts:
            if part.name == name:
                return part
        raise KeyError(name)

    def __iter__(self) -> Iterator[KeyPart]:
        return iter(self.parts)

    def __eq__(self, other: object) -> bool:
        return self.digest == other.digest if isinstance(other, CacheKey) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)

    def __str__(self) -> str:
        return self.digest

    def to_json(self) -> dict[str, Any]:
        """Return the key as JSON data: parts with their digests, and values where they are kept."""
        parts = [[part.name, part.form.value, part.digest, part.size, part.value] for part in self.parts]
        return {"recipe": RECIPE, "kind": self.kind, "parts": parts}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "CacheKey":
        """Rebuild a key and its digest from :meth:`to_json`. Raises ValueError for another recipe."""
        if data.get("recipe") != RECIPE:
            raise ValueError(f"the key was made by recipe {data.get('recipe')!r}; this version reads recipe {RECIPE}")
        parts = (KeyPart(name, Form(form), digest, size, value) for name, form, digest, size, value in data["parts"])
        return cls(data["kind"], tuple(parts))


@dataclass(frozen=True, slots=True)
class PartDifference:
    """A part that two keys do not share; ``None`` on the side that has no part of that name."""

    name: str
    before: KeyPart | None
    after: KeyPart | None

    def describe(self) -> str:
        """Say in one line what differs, down to the member of a JSON value where both values are kept."""
        if self.before is None or self.after is None:
            missing = "only in the new key" if self.before is None else "only in the old key"
            return f"{self.name}: {missing} ({_show(self.after or self.before)})"
        if self.before.form is Form.JSON and self.after.form is Form.JSON:
            members = list(_changed_members(self.name, _load(self.before), _load(self.after)))
            if members:
                return "; ".join(members)
        return f"{self.name}: {_show(self.before)} -> {_show(self.after)}"


def diff(before: CacheKey, after: CacheKey) -> tuple[PartDifference, ...]:
    """Return the parts in which two keys differ, in the order of ``after``; a ``kind`` that differs comes first."""
    found = []
    if before.kind != after.kind:
        found.append(PartDifference("kind", KeyPart.of("kind", before.kind), KeyPart.of("kind", after.kind)))
    old = {part.name: part for part in before.parts}
    for part in after.parts:
        other = old.pop(part.name, None)
        if other is None or other.digest != part.digest:
            found.append(PartDifference(part.name, other, part))
    found.extend(PartDifference(part.name, part, None) for part in old.values())
    return tuple(found)


def neff_key(
    *,
    stablehlo: bytes,
    compiler_config: Mapping[str, Any],
    compiler: str,
    target: str,
    kernels: Mapping[str, str] | None = None,
    host_features: str | None = None,
) -> CacheKey:
    """Build the key of a NEFF from the parts that decide its code, under their standard names.

    ``stablehlo`` is the canonical program without debug locations; ``compiler`` names the compiler and its version;
    ``kernels`` maps a kernel's name to a fingerprint of its source; ``host_features`` is the class of host CPU, for
    code that the emulator's compiler made. Names of models, graphs, files and directories have no place here.
    """
    parts: dict[str, PartValue] = {
        "target": target,
        "compiler": compiler,
        "compiler_config": dict(compiler_config),
        "stablehlo": stablehlo,
    }
    if kernels:
        parts["kernels"] = dict(kernels)
    if host_features is not None:
        parts["host_features"] = host_features
    return CacheKey.of("neff", parts)


def is_digest(text: str) -> bool:
    """Say whether ``text`` is a key digest: 64 lower-case hexadecimal digits."""
    return len(text) == DIGEST_LENGTH and all(digit in "0123456789abcdef" for digit in text)


def _encode(name: str, value: PartValue) -> tuple[Form, bytes | bytearray | memoryview]:
    if isinstance(value, bytes | bytearray | memoryview):
        return Form.BYTES, memoryview(value).cast("B") if isinstance(value, memoryview) else value
    try:
        if isinstance(value, str):
            return Form.TEXT, value.encode()
        _check_json(value)
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return Form.JSON, text.encode()
    except (TypeError, ValueError) as error:
        raise KeyPartError(
            f"Key part {name!r} has no canonical form: {error}. Pass bytes, text, or JSON data with text as keys."
        ) from error


def _check_json(value: object) -> None:
    """Refuse what json.dumps would silently turn into something else (keys that are not text)."""
    if isinstance(value, Mapping):
        for key, member in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{key!r} is a key of type {type(key).__name__}")
            _check_json(member)
    elif isinstance(value, list | tuple):
        for member in value:
            _check_json(member)


def _digest(kind: str, parts: tuple[KeyPart, ...]) -> str:
    names = [part.name for part in parts]
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise KeyPartError(f"Key parts must have different names; used twice: {', '.join(twice)}.")
    encoded = sorted((part.name.encode(), bytes.fromhex(part.digest)) for part in parts)
    kind_bytes = kind.encode()
    pieces = [len(kind_bytes).to_bytes(4, "little"), kind_bytes, len(parts).to_bytes(4, "little")]
    for name, digest in encoded:
        pieces += [len(name).to_bytes(4, "little"), name, digest]
    return blake3(b"".join(pieces), derive_key_context=KEY_CONTEXT).hexdigest()


def _show(part: KeyPart | None) -> str:
    if part is None:
        return "nothing"
    if part.value is not None and len(part.value) <= 200:
        return part.value
    return f"{part.size:,} bytes, {part.digest[:12]}"


def _load(part: KeyPart) -> Any:
    return json.loads(part.value) if part.value is not None else None


def _changed_members(path: str, before: Any, after: Any) -> Iterator[str]:
    if not (isinstance(before, dict) and isinstance(after, dict)):
        return
    for name in sorted(before.keys() | after.keys()):
        inner = f"{path}.{name}"
        if name not in before:
            yield f"{inner}: nothing -> {_compact(after[name])}"
        elif name not in after:
            yield f"{inner}: {_compact(before[name])} -> nothing"
        elif before[name] != after[name]:
            nested = list(_changed_members(inner, before[name], after[name]))
            yield from nested or [f"{inner}: {_compact(before[name])} -> {_compact(after[name])}"]


def _compact(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "..."
