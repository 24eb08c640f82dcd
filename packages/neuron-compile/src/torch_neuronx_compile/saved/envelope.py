"""Named sections of bytes in one piece, covered by a hash.

Layout: the magic, the SHA-256 of all that follows it, the length of the index (8 bytes, little-endian), the index
(JSON: name and length of each section, in order) and the sections.
"""

import hashlib
import json
from collections.abc import Mapping

from torch_neuronx_compile.saved.errors import SavedGraphError

MAGIC = b"torch-neuronx saved graph 1\n"
_HASH = hashlib.sha256().digest_size
_LENGTH = 8


def pack(sections: Mapping[str, bytes]) -> bytes:
    """Return the sections in one piece."""
    index = json.dumps([[name, len(content)] for name, content in sections.items()]).encode()
    body = len(index).to_bytes(_LENGTH, "little") + index + b"".join(sections.values())
    return MAGIC + hashlib.sha256(body).digest() + body


def unpack(data: bytes) -> dict[str, bytes]:
    """Return the sections; raises :class:`SavedGraphError` for anything but what :func:`pack` returned."""
    start = len(MAGIC) + _HASH
    body = data[start:]
    if data[: len(MAGIC)] != MAGIC or hashlib.sha256(body).digest() != data[len(MAGIC) : start]:
        raise SavedGraphError(
            "A saved graph is damaged, or was written by another version: its bytes do not have the hash that was "
            "recorded when it was saved. Delete the file, or the folder TORCHINDUCTOR_CACHE_DIR, and compile again."
        )
    position = _LENGTH + int.from_bytes(body[:_LENGTH], "little")
    sections = {}
    for name, length in json.loads(body[_LENGTH:position]):
        sections[name] = body[position : position + length]
        position += length
    return sections
