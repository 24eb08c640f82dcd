"""Compiling without running, and before running.

:func:`compile_only` makes ``torch.compile(backend="neuron")`` stop after the NEFF; ``precompile`` compiles a list of
models in that way and reports on each graph. Both need the compile extra once something is compiled.
"""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from torch_neuronx import config, extras
from torch_neuronx.errors import ConfigurationError

_EXTRA = ("PrecompileReport", "PrecompiledGraph", "precompile")

__all__ = ["CompileOptions", "compile_only", "current_options", *_EXTRA]


@dataclass(frozen=True)
class CompileOptions:
    """What one compilation may be told; each field may be left out."""

    model_name: str | None = None
    """Name for graphs and artifacts; wins over ``set_model_name``."""
    fallback_execution: bool | None = None
    """Whether a graph that fails to compile or to run runs in eager mode; wins over the environment variable."""
    compiler_args: str | Sequence[str] = ()
    """Flags for ``neuronx-cc``, as one line or as words; they come after those of ``NEURON_CC_FLAGS``."""
    target: str | None = None
    """Chip to compile for, ``trn2`` or ``trn3``; wins over ``NEURON_PLATFORM_TARGET_OVERRIDE`` and the instance."""

    def __post_init__(self) -> None:
        words = self.compiler_args
        try:
            words = tuple(shlex.split(words) if isinstance(words, str) else words)
        except ValueError as error:
            raise ConfigurationError(
                f"The compiler_args {words!r} cannot be split into words: {error}. Close the quotes, or pass a list."
            ) from None
        object.__setattr__(self, "compiler_args", words)

    def over(self, outer: "CompileOptions") -> "CompileOptions":
        """Return these options with what they leave out taken from ``outer``; flags of both, these last."""
        return CompileOptions(
            model_name=outer.model_name if self.model_name is None else self.model_name,
            fallback_execution=outer.fallback_execution if self.fallback_execution is None else self.fallback_execution,
            compiler_args=(*outer.compiler_args, *self.compiler_args),
            target=outer.target if self.target is None else self.target,
        )


_entered: ContextVar[CompileOptions | None] = ContextVar("torch_neuronx_compile_only", default=None)
entered = _entered.get
"""The options of the innermost :func:`compile_only`, or ``None``; without a look at the environment."""


@contextmanager
def compile_only(options: CompileOptions | None = None) -> Iterator[None]:
    """Compile graphs and do not run them: ``with compile_only():`` or, as a decorator, ``@compile_only()``.

    Compiled functions return tensors of the right shapes, dtypes and devices that are filled with zeros; what runs
    operator by operator runs as ever. ``options`` hold for every graph inside, and options of the ``torch.compile``
    call win over them. An inner block takes from the outer one what its own options leave out. The mode belongs to
    the context (:mod:`contextvars`): other threads do not see it. Raises :class:`ConfigurationError` for options that
    are no :class:`CompileOptions`.
    """
    if options is not None and not isinstance(options, CompileOptions):
        raise ConfigurationError(
            f"compile_only() was given {options!r}. Pass CompileOptions(...) or nothing; as a decorator, write "
            "@compile_only() with parentheses."
        )
    inner = options or CompileOptions()
    outer = entered()
    token = _entered.set(inner if outer is None else inner.over(outer))
    try:
        yield
    finally:
        _entered.reset(token)


def current_options() -> CompileOptions | None:
    """Return the options of the compile-only mode that is on here, or ``None`` where graphs run.

    It is on inside :func:`compile_only`, and everywhere with ``TORCH_NEURONX_COMPILE_ONLY``.
    """
    options = entered()
    if options is None and config.get(config.COMPILE_ONLY):
        return CompileOptions()
    return options


def __getattr__(name: str) -> Any:
    if name in _EXTRA:
        return getattr(
            extras.load("compile", "torch_neuronx_compile.precompile", f"torch_neuronx.compiler.{name}"), name
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
