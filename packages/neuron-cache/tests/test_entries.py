from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torch_neuronx_cache import CacheKey, Signer
from torch_neuronx_cache.entries import FRONT_SIZE, Made, encode, read_content, read_entry, read_header
from torch_neuronx_cache.errors import CacheConfigurationError, InvalidEntryError, UntrustedEntryError
from torch_neuronx_cache.stores.interface import Blob

KEY = CacheKey.of("neff", {"stablehlo": b"module {}", "target": "trn2"})
MADE = Made(1.5, "host", 7, 1000, "0.1.0")
SIGNER = Signer(b"sixteen bytes or more")


@given(st.binary(max_size=300), st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=3), st.booleans())
def test_what_was_encoded_is_read_back(content: bytes, labels: dict[str, str], signed: bool) -> None:
    signer = SIGNER if signed else None
    blob = encode(KEY, content, labels, signer, MADE)
    entry = read_entry(Blob(blob), KEY.digest, signer)
    assert entry.content == content == read_content(Blob(blob), KEY.digest, signer)
    assert entry.header.labels == labels
    assert entry.header.made == MADE
    assert entry.header.key == KEY
    assert entry.header.signed == signed


@pytest.mark.parametrize("signer", [None, SIGNER], ids=["unsigned", "signed"])
def test_no_single_flipped_byte_is_served(signer: Signer | None) -> None:
    blob = encode(KEY, b"some content", {"graph": "g"}, signer, MADE)
    for position in range(len(blob)):
        for flip in (0x01, 0x80, 0xFF):
            damaged = bytearray(blob)
            damaged[position] ^= flip
            for read in (read_content, read_entry):
                with pytest.raises(InvalidEntryError):
                    read(Blob(bytes(damaged)), KEY.digest, signer)


def test_no_other_length_is_served() -> None:
    blob = encode(KEY, b"some content", {"graph": "g"}, made=MADE)
    for length in range(len(blob)):
        with pytest.raises(InvalidEntryError, match="truncated"):
            read_content(Blob(blob[:length]), KEY.digest)
    with pytest.raises(InvalidEntryError, match="too long"):
        read_content(Blob(blob + b"\0"), KEY.digest)


@given(st.binary(max_size=2 * FRONT_SIZE))
@settings(max_examples=200)
def test_arbitrary_bytes_are_no_entry(data: bytes) -> None:
    with pytest.raises(InvalidEntryError):
        read_content(Blob(data), KEY.digest)


def test_the_entry_of_another_key_is_not_served(key_of: Callable[..., CacheKey]) -> None:
    blob = encode(KEY, b"content", made=MADE)
    with pytest.raises(InvalidEntryError, match="belongs to the key"):
        read_content(Blob(blob), key_of().digest)


def test_a_header_of_any_length_is_read(key_of: Callable[..., CacheKey]) -> None:
    key = CacheKey.of("neff", {f"part{n}": "x" * 500 for n in range(40)})
    blob = encode(key, b"content", made=MADE)
    assert read_header(Blob(blob), key.digest).key.parts == key.parts
    for length in range(0, len(blob), 97):
        with pytest.raises(InvalidEntryError, match="truncated"):
            read_content(Blob(blob[:length]), key.digest)


def test_with_signing_on_only_the_same_secret_opens() -> None:
    other = Signer(b"another secret of length")
    unsigned, signed = encode(KEY, b"content", made=MADE), encode(KEY, b"content", signer=SIGNER, made=MADE)
    with pytest.raises(UntrustedEntryError, match="no signature"):
        read_content(Blob(unsigned), KEY.digest, SIGNER)
    with pytest.raises(UntrustedEntryError, match="not made with the key"):
        read_content(Blob(signed), KEY.digest, other)
    assert read_content(Blob(signed), KEY.digest) == b"content"


def test_a_signing_key_comes_from_a_private_file(place: Path) -> None:
    file = place / "key"
    file.write_bytes(b"sixteen bytes or more\n")
    file.chmod(0o600)
    message = b"message"
    assert Signer.from_file(file).verify(message, SIGNER.sign(message))
    file.chmod(0o644)
    with pytest.raises(CacheConfigurationError, match="mode 0644"):
        Signer.from_file(file)
    file.chmod(0o600)
    file.write_bytes(b"short")
    with pytest.raises(CacheConfigurationError, match="too short"):
        Signer.from_file(file)
    with pytest.raises(CacheConfigurationError, match="cannot be read"):
        Signer.from_file(place / "missing")
