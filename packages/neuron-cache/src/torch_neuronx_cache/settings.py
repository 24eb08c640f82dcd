"""The variables that configure the caches, each declared once, and what they mean together."""

import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from torch_neuronx_cache.bounds import Limits, parse_age, parse_size
from torch_neuronx_cache.errors import CacheConfigurationError
from torch_neuronx_cache.notices import say_once
from torch_neuronx_cache.trust import SIGNING_VARIABLE, TRUST_VARIABLE, Trust

NEFF_VARIABLE = "TORCH_NEURONX_NEFF_CACHE_DIR"
HLO_VARIABLE = "TORCH_NEURONX_HLO_CACHE_DIR"
LOCAL_VARIABLE = "TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR"
DISABLE_VARIABLE = "TORCH_NEURONX_NEFF_DISABLE_CACHE"
OLD_DISABLE_VARIABLE = "TORCH_NEURONX_DISABLE_NEFF_CACHE"
TIMEOUT_VARIABLE = "TORCH_NEURONX_NEFF_CACHE_LOCK_TIMEOUT"
MAX_SIZE_VARIABLE = "TORCH_NEURONX_CACHE_MAX_SIZE"
MAX_AGE_VARIABLE = "TORCH_NEURONX_CACHE_MAX_AGE"
MEMORY_VARIABLE = "TORCH_NEURONX_CACHE_MEMORY_SIZE"


@dataclass(frozen=True, slots=True)
class Variable:
    """An environment variable: name, type, default and effect, as the documentation shows them."""

    name: str
    type: str
    default: str
    effect: str


VARIABLES = (
    Variable(NEFF_VARIABLE, "path", "/tmp/neff_cache", "Directory or URL of the persistent NEFF cache."),
    Variable(HLO_VARIABLE, "path", "/tmp/hlo_cache", "Directory or URL of the persistent HLO cache."),
    Variable(LOCAL_VARIABLE, "path", "/tmp/local_cache", "Local directory for locks and scratch; never on a network."),
    Variable(DISABLE_VARIABLE, "bool", "False", "Switches the persistent NEFF cache off; every compile runs fresh."),
    Variable(OLD_DISABLE_VARIABLE, "bool", "False", f"Older spelling of {DISABLE_VARIABLE}, which wins over it."),
    Variable(TIMEOUT_VARIABLE, "int", "1200", "Seconds to wait for the compile lock of a key before giving up."),
    Variable(TRUST_VARIABLE, "str", "", "Users, by name or id, whose entries are loaded besides one's own."),
    Variable(SIGNING_VARIABLE, "path", "", "File with the key that signs entries; then only signed ones are loaded."),
    Variable(MAX_SIZE_VARIABLE, "size", "", "Bound on a store, such as 10G; the longest unused entries go first."),
    Variable(MAX_AGE_VARIABLE, "age", "", "Entries not used for this long, such as 30d, go."),
    Variable(MEMORY_VARIABLE, "size", "64M", "Bound on what a process keeps in memory of what it read; 0 for nothing."),
)
_DEFAULTS = {variable.name: variable.default for variable in VARIABLES}
T = TypeVar("T")
_TRUE = frozenset({"1", "true", "yes"})
_FALSE = frozenset({"0", "false", "no", ""})


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that decides where the caches are and how they behave."""

    neff_url: str
    hlo_url: str
    local_directory: str
    disabled: bool = False
    lock_timeout: int = 1200
    """Seconds."""
    trust: Trust = field(default_factory=Trust)
    signing_key_file: str | None = None
    limits: Limits = field(default_factory=Limits)
    memory_bytes: int = 64 * 2**20

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] | None = None) -> "Settings":
        """Read the variables. Raises :class:`CacheConfigurationError` that names the one with an unusable value.

        Where a default directory already belongs to another user, ``<path>_<uid>`` takes its place, with one warning.
        """
        env = os.environ if environ is None else environ
        signing = env.get(SIGNING_VARIABLE) or None
        trust = Trust.parse(env.get(TRUST_VARIABLE, ""), signed=signing is not None)
        max_size = _parsed(env, MAX_SIZE_VARIABLE, parse_size)
        max_age = _parsed(env, MAX_AGE_VARIABLE, parse_age)
        return cls(
            neff_url=_place(env, NEFF_VARIABLE, trust),
            hlo_url=_place(env, HLO_VARIABLE, trust),
            local_directory=_place(env, LOCAL_VARIABLE, Trust()),
            disabled=_boolean(env, DISABLE_VARIABLE if DISABLE_VARIABLE in env else OLD_DISABLE_VARIABLE),
            lock_timeout=_seconds(env, TIMEOUT_VARIABLE),
            trust=trust,
            signing_key_file=signing,
            limits=Limits(max_size, max_age),
            memory_bytes=_parsed(env, MEMORY_VARIABLE, parse_size) or 0,
        )


def _boolean(env: Mapping[str, str], name: str) -> bool:
    text = env.get(name, "").strip().lower()
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise CacheConfigurationError(f"{name}={env[name]!r} is not a boolean. Use 1, true or yes, or 0, false or no.")


def _seconds(env: Mapping[str, str], name: str) -> int:
    text = (env.get(name) or _DEFAULTS[name]).strip()
    if not text.isdecimal():
        raise CacheConfigurationError(f"{name}={text!r} is not a number of seconds. Use a whole number, 0 or more.")
    return int(text)


def _parsed(env: Mapping[str, str], name: str, parse: Callable[[str], T]) -> T | None:
    text = env.get(name) or _DEFAULTS[name]
    try:
        return parse(text) if text else None
    except CacheConfigurationError as error:
        raise CacheConfigurationError(f"{name}: {error}") from None


def _place(env: Mapping[str, str], name: str, trust: Trust) -> str:
    chosen = env.get(name)
    if chosen:
        return chosen if "://" in chosen else str(Path(chosen).expanduser())
    return _own_default(_DEFAULTS[name], name, trust)


def _own_default(path: str, name: str, trust: Trust) -> str:
    """Return ``path``, or ``<path>_<uid>`` where somebody else was there first."""
    try:
        status = os.lstat(path)
    except OSError:
        return path
    uid = os.geteuid()
    if stat.S_ISDIR(status.st_mode) and (status.st_uid in {uid, *trust.owners} or trust.signed):
        return path
    own = f"{path}_{uid}"
    say_once(
        f"default {path}",
        f"{path}, the default of {name}, belongs to user {status.st_uid}, so {own} is used. "
        f"Set {name} to choose a directory of your own.",
    )
    return own
