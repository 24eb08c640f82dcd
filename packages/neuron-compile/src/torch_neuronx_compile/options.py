"""What ``torch.compile(..., mode=, options=)`` and ``NEURON_CC_FLAGS`` may say to this backend."""

import warnings
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any

from torch_neuronx import config
from torch_neuronx.compiler import CompileOptions, current_options
from torch_neuronx_compile.compilers.neuronx_cc import flags
from torch_neuronx_compile.errors import OptionError
from torch_neuronx_compile.naming import check_model_name

__all__ = ["CompileOptions", "compiler_flags", "falls_back", "in_force", "read_options"]

KNOWN = tuple(field.name for field in fields(CompileOptions))
_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "model_name": ((str,), "a str"),
    "fallback_execution": ((bool,), "a bool"),
    "compiler_args": ((str, list, tuple), "a str or a list of str"),
    "target": ((str,), "a str"),
}


def read_options(mode: str | None, options: Mapping[str, Any] | None, others: Mapping[str, Any]) -> CompileOptions:
    """Return the options that are known; warn about the others and about a mode, once each per process.

    Raises :class:`OptionError` for a known option with a value of another type, and, with
    ``TORCH_NEURONX_STRICT_OPTIONS``, for an unknown one.
    """
    if mode not in (None, "default"):
        warn_once(f"torch.compile(backend='neuron') has one mode, 'default'; mode={mode!r} has no effect.")
    given = {**others, **(options or {})}
    for name in sorted(given.keys() - set(KNOWN)):
        message = f"torch.compile(backend='neuron') does not know the option {name!r}. It knows: {', '.join(KNOWN)}."
        if config.get(config.STRICT_OPTIONS):
            raise OptionError(message)
        warn_once(message)
    chosen = {name: given[name] for name in KNOWN if given.get(name) is not None}
    for name, value in chosen.items():
        types, accepts = _TYPES[name]
        words = value if isinstance(value, (list, tuple)) else ()
        if not isinstance(value, types) or not all(isinstance(word, str) for word in words):
            raise OptionError(f"The option {name!r} of torch.compile(backend='neuron') is {value!r}. Use {accepts}.")
    if "model_name" in chosen:
        try:
            check_model_name(chosen["model_name"])
        except ValueError as error:
            raise OptionError(str(error)) from None
    return CompileOptions(**chosen)


def in_force(options: CompileOptions) -> CompileOptions:
    """Return the options of a ``torch.compile`` call with those of the compile-only mode around it."""
    outer = current_options()
    return options if outer is None else options.over(outer)


def falls_back(options: CompileOptions) -> bool:
    """Whether the original graph runs in eager mode after a failure."""
    if options.fallback_execution is not None:
        return options.fallback_execution
    return not config.get(config.DISABLE_FALLBACK_EXECUTION)


def compiler_flags(options: CompileOptions) -> dict[str, str]:
    """Return the flags for ``neuronx-cc`` by name, sorted: the environment's, then the call's, which win.

    Raises :class:`OptionError` for a flag or a value that the compiler does not take.
    """
    source = config.CC_FLAGS.name
    found = flags.parse(flags.split(config.get(config.CC_FLAGS), source), source)
    found |= flags.parse(options.compiler_args, "The option 'compiler_args'")
    return dict(sorted(found.items()))


@cache
def warn_once(message: str) -> None:
    """Warn, the first time that this process says ``message``."""
    warnings.warn(message, stacklevel=2)
