"""What ``torch.compile(..., mode=, options=)`` may say to this backend."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from torch_neuronx import config
from torch_neuronx.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """The options of one ``torch.compile`` call; each may be left out."""

    model_name: str | None = None
    """Name for graphs and artifacts; wins over ``set_model_name``."""
    fallback_execution: bool | None = None
    """Whether a graph that fails to compile or to run runs in eager mode; wins over the environment variable."""

    @property
    def falls_back(self) -> bool:
        """Whether the original graph runs in eager mode after a failure."""
        if self.fallback_execution is not None:
            return self.fallback_execution
        return not config.get(config.DISABLE_FALLBACK_EXECUTION)


_TYPES: dict[str, type] = {"model_name": str, "fallback_execution": bool}


def read_options(mode: str | None, options: Mapping[str, Any] | None, others: Mapping[str, Any]) -> CompileOptions:
    """Return the options that are known; warn about the others and about a mode, once each per process.

    Raises :class:`ConfigurationError` for a known option with a value of another type.
    """
    if mode not in (None, "default"):
        _warn(f"torch.compile(backend='neuron') has one mode, 'default'; mode={mode!r} has no effect.")
    known = tuple(field.name for field in fields(CompileOptions))
    given = {**others, **(options or {})}
    for name in given.keys() - set(known):
        _warn(f"torch.compile(backend='neuron') does not know the option {name!r}. It knows: {', '.join(known)}.")
    for name in known:
        value = given.get(name)
        if value is not None and type(value) is not _TYPES[name]:
            raise ConfigurationError(
                f"The option {name!r} of torch.compile(backend='neuron') is {value!r}. Use a {_TYPES[name].__name__}."
            )
    return CompileOptions(**{name: given[name] for name in known if name in given})


@cache
def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=2)
