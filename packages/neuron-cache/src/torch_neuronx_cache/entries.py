"""The format of an entry: what is stored under a digest, in every store.

Little-endian, version 1::

    offset  size  field
         0     8  magic "TNXCACHE"
         8     2  version, 1
        10     2  flags; bit 0: signed
        12     4  length of the header, H
        16     8  length of the content, C
        24    32  digest of the key
        56    32  BLAKE3 of the content
        88    16  XXH3-128 of the content
       104    32  BLAKE3 of bytes 0..104 and the header
       136    32  HMAC-SHA256 of bytes 0..136, or zeros
       168     H  header: UTF-8 JSON (the key's named parts, labels, what made the entry)
     168+H     C  content

Every byte is covered, and the length of the whole must be exact. An unsigned entry is trusted for its owner, so a hit
checks its content for damage only, with XXH3; a signed one is trusted for its signature, which covers the content
through BLAKE3, so a hit checks that. A full check does both.
"""

import json
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple, Protocol

from blake3 import blake3
from xxhash import xxh3_128_digest

from torch_neuronx_cache import processes
from torch_neuronx_cache.errors import InvalidEntryError, UntrustedEntryError
from torch_neuronx_cache.keys import CacheKey
from torch_neuronx_cache.signing import SIGNATURE_SIZE, Signer

MAGIC = b"TNXCACHE"
VERSION = 1
FRONT_SIZE = 168
HEAD_GUESS = 2048
"""Bytes that hold the front and the header of nearly every entry, so that they come with one read."""
LARGEST_HEADER = 1 << 24

_FRONT = struct.Struct("<8sHHIQ32s32s16s32s32s")
_HASHED = 104
_SIGNED_PART = 136
_SIGNED = 1
_NO_SIGNATURE = bytes(SIGNATURE_SIZE)


@dataclass(frozen=True, slots=True)
class Made:
    """Who made an entry, where and when."""

    time: float
    """Seconds since 1970."""
    host: str
    pid: int
    uid: int
    package: str
    """Version of this package."""

    @classmethod
    def here(cls) -> "Made":
        """Describe this process, now."""
        me = processes.current()
        return cls(time.time(), me.host, me.pid, me.uid, _own_version())


@dataclass(frozen=True, slots=True)
class Header:
    """Everything that an entry says about its content."""

    key: CacheKey
    content_size: int
    content_hash: str
    """BLAKE3 of the content, hexadecimal."""
    made: Made
    labels: Mapping[str, str] = field(default_factory=dict)
    """Words for people that do not change the key: ``graph``, ``model``."""
    signed: bool = False

    def describe(self, name: str) -> str:
        """Return a label of that name, or the kept value of a part of that name, or an empty text."""
        if name in self.labels:
            return self.labels[name]
        for part in self.key:
            if part.name == name:
                return part.value or ""
        return ""


@dataclass(frozen=True, slots=True)
class Entry:
    """A header and the content that it describes."""

    header: Header
    content: bytes


class Readable(Protocol):
    """Stored bytes that can be read in pieces."""

    size: int
    """Bytes of the whole."""

    def read(self, start: int, length: int) -> bytes:
        """Return up to ``length`` bytes from ``start``; fewer only at the end."""


class _Front(NamedTuple):
    magic: bytes
    version: int
    flags: int
    header_size: int
    content_size: int
    key: bytes
    content_hash: bytes
    content_checksum: bytes
    header_hash: bytes
    signature: bytes


def encode(
    key: CacheKey,
    content: bytes,
    labels: Mapping[str, str] | None = None,
    signer: Signer | None = None,
    made: Made | None = None,
) -> bytes:
    """Return the bytes of an entry."""
    made = made or Made.here()
    document = {
        "key": key.to_json(),
        "labels": dict(labels or {}),
        "made": {"time": made.time, "host": made.host, "pid": made.pid, "uid": made.uid, "package": made.package},
    }
    header = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
    hashed = _FRONT.pack(
        MAGIC,
        VERSION,
        _SIGNED if signer else 0,
        len(header),
        len(content),
        bytes.fromhex(key.digest),
        blake3(content).digest(),
        xxh3_128_digest(content),
        b"",
        b"",
    )[:_HASHED]
    signed = hashed + blake3(hashed).update(header).digest()
    signature = signer.sign(signed) if signer else _NO_SIGNATURE
    return b"".join((signed, signature, header, content))


def read_content(source: Readable, digest: str, signer: Signer | None = None) -> bytes:
    """Return the content of the entry of that key: the way of a hit.

    Raises :class:`InvalidEntryError` with the reason when anything is not as it was written, or when the entry belongs
    to another key; :class:`UntrustedEntryError` when ``signer`` is given and did not sign it.
    """
    front, end, _ = _read_head(source, digest, signer)
    expected = end + front.content_size
    if source.size != expected:
        what = "truncated" if source.size < expected else "too long"
        raise InvalidEntryError(f"it is {what}: {source.size:,} bytes instead of {expected:,}")
    content = source.read(end, front.content_size)
    if signer:
        intact = blake3(content).digest() == front.content_hash
    else:
        intact = xxh3_128_digest(content) == front.content_checksum
    if not intact or len(content) != front.content_size:
        raise InvalidEntryError("its content does not have the hash that was recorded when it was stored")
    return content


def read_header(source: Readable, digest: str, signer: Signer | None = None) -> Header:
    """Return the header, checked but for the content's hash. Raises what :func:`read_content` raises."""
    front, _, text = _read_head(source, digest, signer)
    try:
        document = json.loads(text)
        made = document["made"]
        header = Header(
            key=CacheKey.from_json(document["key"]),
            content_size=front.content_size,
            content_hash=front.content_hash.hex(),
            made=Made(made["time"], made["host"], made["pid"], made["uid"], made["package"]),
            labels=document["labels"],
            signed=bool(front.flags & _SIGNED),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidEntryError(f"its header cannot be understood ({error})") from error
    if header.key.digest != digest:
        raise InvalidEntryError("the parts in its header are those of another key")
    return header


def read_entry(source: Readable, digest: str, signer: Signer | None = None) -> Entry:
    """Return the whole entry after every check there is. Raises what :func:`read_content` raises."""
    header = read_header(source, digest, signer)
    content = read_content(source, digest, signer)
    if blake3(content).hexdigest() != header.content_hash:
        raise InvalidEntryError("its content does not have the hash that was recorded when it was stored")
    return Entry(header, content)


def _read_head(source: Readable, digest: str, signer: Signer | None) -> tuple[_Front, int, bytes]:
    start = source.read(0, HEAD_GUESS)
    if len(start) < FRONT_SIZE:
        raise InvalidEntryError(f"it is truncated: {len(start)} bytes, and the front alone has {FRONT_SIZE}")
    front = _Front._make(_FRONT.unpack_from(start))
    if front.magic != MAGIC or front.version != VERSION:
        raise InvalidEntryError("it is not an entry of this format")
    if front.header_size > LARGEST_HEADER:
        raise InvalidEntryError(f"it claims a header of {front.header_size:,} bytes")
    end = FRONT_SIZE + front.header_size
    text = start[FRONT_SIZE:end] if end <= len(start) else source.read(FRONT_SIZE, front.header_size)
    if len(text) < front.header_size:
        raise InvalidEntryError(f"it is truncated: {source.size:,} bytes, inside its header")
    if blake3(start[:_HASHED]).update(text).digest() != front.header_hash:
        raise InvalidEntryError("its header does not have the hash that was recorded when it was stored")
    _check_signature(start[:_SIGNED_PART], front, signer)
    if front.key.hex() != digest:
        raise InvalidEntryError(f"it belongs to the key {front.key.hex()[:12]}")
    return front, end, text


def _check_signature(message: bytes, front: _Front, signer: Signer | None) -> None:
    signed = bool(front.flags & _SIGNED)
    if not signed and front.signature != _NO_SIGNATURE:
        raise InvalidEntryError("it is unsigned and yet has a signature")
    if signer is None:
        return
    if not signed:
        raise UntrustedEntryError("signing is on and it carries no signature")
    if not signer.verify(message, front.signature):
        raise UntrustedEntryError("its signature was not made with the key in use")


@cache
def _own_version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # slow to import, and not needed to read entries

    try:
        return version("torch-neuronx-cache")
    except PackageNotFoundError:  # run from a source tree
        return "unknown"
