"""Signatures: HMAC-SHA256 with a key from a file, for stores that more than one user can write."""

import os
import stat
from pathlib import Path

from torch_neuronx_cache.errors import CacheConfigurationError

SIGNATURE_SIZE = 32
"""Bytes of a signature."""

MINIMUM_KEY_SIZE = 16
"""Shortest key file, in bytes, that is taken as a secret."""


class Signer:
    """Signs entries and checks signatures with one secret."""

    def __init__(self, secret: bytes) -> None:
        if len(secret) < MINIMUM_KEY_SIZE:
            raise CacheConfigurationError(
                f"A signing key of {len(secret)} bytes is too short. Use at least {MINIMUM_KEY_SIZE} random bytes: "
                "head -c 32 /dev/urandom > key"
            )
        self._secret = secret

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> "Signer":
        """Read the secret, without surrounding white space, from a file that only its owner and group can read."""
        try:
            with Path(path).open("rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                secret = file.read().strip()
        except OSError as error:
            raise CacheConfigurationError(
                f"The signing key {os.fspath(path)} cannot be read: {error.strerror}. Point the variable at a file "
                "that this user can read, or unset it."
            ) from error
        if mode & (stat.S_IWGRP | stat.S_IRWXO):
            raise CacheConfigurationError(
                f"The signing key {os.fspath(path)} has mode {stat.S_IMODE(mode):04o}: others can read or change it. "
                "Use: chmod 600 (or 640 to share it with a group)."
            )
        return cls(secret)

    def sign(self, message: bytes) -> bytes:
        """Return the signature of ``message``, 32 bytes."""
        import hmac  # not needed where nothing is signed

        return hmac.digest(self._secret, message, "sha256")

    def verify(self, message: bytes, signature: bytes) -> bool:
        """Compare in constant time."""
        import hmac

        return hmac.compare_digest(self.sign(message), signature)
