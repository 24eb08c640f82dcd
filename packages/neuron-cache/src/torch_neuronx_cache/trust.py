"""Whose bytes may be loaded. Entries are code: what another user could have written is refused.

Two ways out for users who share a store: name the owners who are trusted, or sign the entries.
"""

import os
import pwd
import stat
from dataclasses import dataclass

from torch_neuronx_cache.errors import CacheConfigurationError, StoreRefusedError

TRUST_VARIABLE = "TORCH_NEURONX_CACHE_TRUST"
SIGNING_VARIABLE = "TORCH_NEURONX_CACHE_SIGNING_KEY_FILE"

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class Trust:
    """The rule for one store."""

    owners: frozenset[int] = frozenset()
    """User ids that are trusted besides the user who runs."""
    signed: bool = False
    """Entries are signed, so that it does not matter who could have written them."""

    @classmethod
    def parse(cls, text: str, *, signed: bool = False) -> "Trust":
        """Read user names and ids, separated by commas. Raises :class:`CacheConfigurationError` for an unknown one."""
        owners = set()
        for word in filter(None, (word.strip() for word in text.split(","))):
            if word.isdecimal():
                owners.add(int(word))
                continue
            try:
                owners.add(pwd.getpwnam(word).pw_uid)
            except KeyError:
                raise CacheConfigurationError(
                    f"{TRUST_VARIABLE} names the user {word!r}, whom this system does not know. "
                    "Give user names or numeric ids, separated by commas."
                ) from None
        return cls(frozenset(owners), signed)

    def check_directory(self, status: os.stat_result, path: str) -> None:
        """Raise :class:`StoreRefusedError` unless only trusted users can have put files there.

        A directory that others can write is accepted only with the sticky bit and an explicit list of owners: each
        entry's own owner then decides, and nobody can replace another's entry.
        """
        if self.signed:
            return
        if not self._owner_is_trusted(status.st_uid):
            raise _refused(f"The directory {path} belongs to {_user(status.st_uid)}", status.st_uid)
        if status.st_mode & _OTHERS_WRITE and not (self.owners and status.st_mode & stat.S_ISVTX):
            raise _refused(
                f"The directory {path} can be written by others (mode {stat.S_IMODE(status.st_mode):04o})", None
            )

    def check_file(self, status: os.stat_result, path: str) -> None:
        """Raise :class:`StoreRefusedError` unless only a trusted user can have written the file."""
        if self.signed:
            return
        if not self._owner_is_trusted(status.st_uid):
            raise _refused(f"The entry {path} belongs to {_user(status.st_uid)}", status.st_uid)
        if status.st_mode & _OTHERS_WRITE:
            raise _refused(f"The entry {path} can be written by others (mode {stat.S_IMODE(status.st_mode):04o})", None)

    def _owner_is_trusted(self, uid: int) -> bool:
        return uid == os.geteuid() or uid in self.owners


def _refused(what: str, owner: int | None) -> StoreRefusedError:
    if owner is None:
        fix = f"remove that permission (chmod go-w; with the sticky bit, naming owners in {TRUST_VARIABLE} will do)"
    else:
        fix = f"trust its owner with {TRUST_VARIABLE}={owner}"
    return StoreRefusedError(
        f"{what}; cached programs are code, so it is not loaded. Either {fix}, or sign the entries "
        f"with a key that both sides share ({SIGNING_VARIABLE})."
    )


def _user(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name} ({uid})"
    except KeyError:
        return f"user {uid}"
