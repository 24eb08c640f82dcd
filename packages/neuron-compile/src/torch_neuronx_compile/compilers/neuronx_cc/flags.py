"""The flags of ``neuronx-cc compile``: which there are, which values they take, one spelling for each.

Known are those of the compiler's command-line reference and the few others that published code passes. The check is
made before anything compiles and on every machine, so that a slip of the finger shows on a laptop.
"""

import difflib
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch_neuronx_compile.errors import OptionError


def _any(value: str) -> bool:
    return bool(value)


def _one_of(*values: str) -> Callable[[str], bool]:
    return values.__contains__


_DOWNCASTS = ("dot", "scatter", "all_reduce", "reduce_scatter", "pow")


def _downcasts(value: str) -> bool:
    return value in ("default", "all", "none") or all(part in _DOWNCASTS for part in value.split(","))


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag under the name that goes into keys and command lines."""

    name: str
    accepts: str = "a value"
    """Completes the sentence "use …"; empty for a flag without a value."""
    check: Callable[[str], bool] = _any
    aliases: tuple[str, ...] = ()
    words: bool = False
    """Whether the value is one word or several."""
    opposite: str | None = None


def _choice(name: str, *values: str, aliases: tuple[str, ...] = ()) -> Flag:
    return Flag(name, f"one of {', '.join(values)}", _one_of(*values), aliases)


def _switch(name: str, opposite: str | None = None) -> Flag:
    return Flag(name, "", opposite=opposite)


_ACCUMULATION = "-mixed-precision-accumulation"
FLAGS = (
    Flag("--target", "the name of a target"),
    _choice("--lnc", "1", "2", aliases=("-lnc", "--logical-nc-config")),
    _choice("--optlevel", "1", "2", "3", aliases=("-O",)),
    _choice("--model-type", "generic", "transformer", "unet-inference"),
    _choice("--auto-cast", "none", "matmult", "all"),
    _choice("--auto-cast-type", "bf16", "fp16", "tf32", "fp8_e4m3"),
    _choice("--native-int64", "default", "enabled", "disabled"),
    Flag("--implicit-integer-downcast", f"default, all, none, or a list of {','.join(_DOWNCASTS)}", _downcasts),
    _choice("--distribution-strategy", "llm-training"),
    _switch(f"--enable{_ACCUMULATION}", f"--disable{_ACCUMULATION}"),
    _switch(f"--disable{_ACCUMULATION}", f"--enable{_ACCUMULATION}"),
    _switch("--enable-saturate-infinity"),
    _switch("--enable-fast-context-switch"),
    _switch("--enable-fast-loading-neuron-binaries"),
    _choice("--verbose", "debug", "info", "warning", "error", "critical"),
    Flag("--logfile", "the path of a file"),
    # in no reference, in published code
    Flag("--pipeline", "names of stages", words=True),
    _switch("--enable-internal-neff-wrapper"),
    _choice("--logfile-verbose", "debug", "info", "warning", "error", "critical"),
    Flag("--internal-tensorizer-opt-level", "a whole number", str.isdecimal),
    Flag("--tensorizer-options"),
    Flag("--internal-backend-options"),
    Flag("--internal-compiler-debug-mode"),
)
_BY_SPELLING = {spelling: flag for flag in FLAGS for spelling in (flag.name, *flag.aliases)}

_OURS = {
    "--framework": "It is always XLA here; leave it out.",
    "--output": "NEFFs go to the cache and to the artifacts; leave it out.",
    "--cache_dir": "It belongs to older tools. Set TORCH_NEURONX_NEFF_CACHE_DIR.",
}


def parse(words: Sequence[str], source: str) -> dict[str, str]:
    """Return the flags in ``words`` by name, with their values; the right-most of several wins.

    ``source`` says where they were written, for messages. Raises :class:`OptionError` for a flag that ``neuronx-cc``
    does not have, with those that resemble it, and for a value that a flag does not take.
    """
    found: dict[str, str] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        flag, spelling, value = _split(word, source)
        if not flag.accepts:
            if value is not None:
                raise OptionError(f"{source} has {word!r}, and {spelling} takes no value. Write {spelling} alone.")
            found.pop(flag.opposite or "", None)
            found[flag.name] = ""
            continue
        values = [] if value is None else [value]
        if value is None and rest:
            values.append(rest.pop(0))
        while flag.words and rest and not rest[0].startswith("-"):
            values.append(rest.pop(0))
        value = " ".join(values)
        if not flag.check(value):
            was = f"the value {value!r}" if values else "no value"
            raise OptionError(f"{source} gives {spelling} {was}, which neuronx-cc does not take. Use {flag.accepts}.")
        found.pop(flag.name, None)
        found[flag.name] = value
    return dict(sorted(found.items()))


def split(text: str, source: str) -> list[str]:
    """Split a line of flags into words as a shell does; raises :class:`OptionError` for an open quote."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise OptionError(
            f"{source} is {text!r}, which cannot be split into flags: {error}. Close the quotes."
        ) from None


def command_line(flags: dict[str, str]) -> list[str]:
    """Write parsed flags as arguments."""
    words: list[str] = []
    for name, value in flags.items():
        if not value:
            words.append(name)
        elif _BY_SPELLING[name].words:
            words += [name, *value.split(" ")]
        else:
            words.append(f"{name}={value}")
    return words


def _split(word: str, source: str) -> tuple[Flag, str, str | None]:
    """Return the flag of a word, how it was spelled, and the value that is part of the word."""
    spelling, equals, value = word.partition("=")
    if spelling in _BY_SPELLING:
        return _BY_SPELLING[spelling], spelling, value if equals else None
    if word.startswith("-O") and len(word) == 3:
        return _BY_SPELLING["-O"], "-O", word[2:]
    if spelling in _OURS:
        raise OptionError(f"{source} has {word!r}, which cannot be set there. {_OURS[spelling]}")
    if not word.startswith("-"):
        raise OptionError(f"{source} has {word!r}, which belongs to no flag. Write flags as --name=value.")
    near = difflib.get_close_matches(spelling, _BY_SPELLING, n=3)
    resembles = f" Did you mean {', '.join(near)}?" if near else ""
    raise OptionError(
        f"{source} has the flag {spelling!r}, which neuronx-cc does not have.{resembles} Known are: "
        f"{', '.join(flag.name for flag in FLAGS)}."
    )
