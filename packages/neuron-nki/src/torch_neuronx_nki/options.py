"""What the simulator simulates: the chip, the language's version, and how numbers are rounded."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from torch_neuronx import config
from torch_neuronx.targets import core_layout, find_target
from torch_neuronx_nki.errors import NkiLaunchError
from torch_neuronx_nki.targets import CoreLimits, limits_of

LANGUAGES = ((0, 3), (0, 4), (0, 5), (0, 6), (0, 7))
"""Versions of the language whose rules can be asked for."""


class Verify(StrEnum):
    """What happens when the verifier finds an error: an exception, an ``NkiWarning``, or there is no verifier."""

    strict = "strict"
    warn = "warn"
    off = "off"


@dataclass(frozen=True, slots=True)
class Options:
    """How a kernel is simulated."""

    limits: CoreLimits
    language: tuple[int, int] = (0, 7)
    precise: bool = True
    """Round to the types as the chip does; False holds narrow floating-point types as float32."""
    saturate_fp8: bool = False
    """Keep float8 results finite on overflow; False gives infinity, or NaN where the type has none."""
    poison: bool = True
    """Fill fresh memory with NaN, and integers with an odd pattern, so that reading it shows."""
    verify: Verify = Verify.strict
    """What the verifier does."""


def options(**changes: Any) -> Options:
    """Return what the environment asks for, with ``changes``.

    ``target`` names a chip, ``language`` is a version such as ``"0.6"``; the rest are fields of :class:`Options`.
    Raises :class:`NkiLaunchError` for a version that is not known.
    """
    target = changes.pop("target", None)
    language = changes.pop("language", None)
    if target is None:
        limits = limits_of(core_layout().target)
    else:
        from torch_neuronx import plugins

        limits = limits_of(find_target(target, plugins.manager().targets()))
    made = Options(
        limits=limits,
        precise=config.get(config.NKI_PRECISE_FP),
        verify=_verify(changes.pop("verify", None)),
    )
    if language is not None:
        made = replace(made, language=_version(language))
    return replace(made, **changes)


def _verify(asked: Any) -> Verify:
    mode = config.get(config.NKI_VERIFY) if asked is None else asked
    try:
        return Verify(mode)
    except ValueError:
        raise NkiLaunchError(f"There is no verify={asked!r}. Use one of: {', '.join(Verify)}.") from None


def _version(language: str) -> tuple[int, int]:
    for version in LANGUAGES:
        if language == f"{version[0]}.{version[1]}":
            return version
    known = ", ".join(f"{major}.{minor}" for major, minor in LANGUAGES)
    raise NkiLaunchError(f"There is no version {language!r} of the kernel language. Use one of: {known}.")
