"""Every error and warning class of the package.

Each class has a ``code``, a slug that stays the same between releases, and derives from the built-in exception that
Python code would catch for the same mistake.
"""

from typing import ClassVar


class CacheError(RuntimeError):
    """Base of every error that this package raises on purpose."""

    code: ClassVar[str] = "cache"


class CacheConfigurationError(CacheError, ValueError):
    """A variable or an argument has a value that cannot be used."""

    code = "cache-configuration"


class KeyPartError(CacheError, TypeError):
    """A part of a key is not bytes, text or plain JSON data, or its name is used twice."""

    code = "cache-key-part"


class LockTimeoutError(CacheError, TimeoutError):
    """Another process held the lock of a key for longer than the caller would wait."""

    code = "cache-lock-timeout"


class StoreError(CacheError, OSError):
    """A store could not be read or written: no permission, no space, no connection."""

    code = "cache-store"


class StoreRefusedError(StoreError, PermissionError):
    """A directory or an entry could have been written by somebody who is not trusted, so it is not loaded."""

    code = "cache-refused"


class InvalidEntryError(CacheError, ValueError):
    """The bytes of an entry are not what was stored under that key."""

    code = "cache-invalid-entry"


class UntrustedEntryError(InvalidEntryError, PermissionError):
    """The signature of an entry is missing, or was not made with the key in use."""

    code = "cache-untrusted-entry"


class UnknownSchemeError(CacheError, LookupError):
    """No installed package offers a store for the scheme of a URL, or two of them do."""

    code = "cache-unknown-scheme"


class UnknownEntryError(CacheError, LookupError):
    """No entry, or more than one, answers to a key prefix or a graph's name."""

    code = "cache-unknown-entry"


class CacheWarning(UserWarning):
    """The cache works less well than it should; the program goes on."""
