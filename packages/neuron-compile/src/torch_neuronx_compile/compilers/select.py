"""What turns a program into a NEFF: the compiler, the chip and the flags."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from torch_neuronx import config, plugins
from torch_neuronx.compiler import current_options
from torch_neuronx.compilers import Compiler
from torch_neuronx.errors import NEFFExecutionError, RuntimeUnavailableError
from torch_neuronx.logs import logger
from torch_neuronx.neff import CHIP
from torch_neuronx.runtimes.select import AUTO, select_runtime
from torch_neuronx.targets import DEFAULT_TARGET, CoreLayout, find_target, lay_out_cores
from torch_neuronx_compile.errors import OptionError
from torch_neuronx_compile.options import CompileOptions, compiler_flags, in_force


@dataclass(frozen=True, slots=True)
class Toolchain:
    """All but the program that decides the bytes of a NEFF."""

    compiler: Compiler
    layout: CoreLayout
    flags: Mapping[str, str]
    """What the user set for ``neuronx-cc``; other compilers are told, and keyed by it, all the same."""

    def key(self, program: str) -> tuple[str, ...]:
        """Return what tells the NEFF of the program with the content key ``program`` from all others."""
        compiler, layout = self.compiler, self.layout
        flags = (f"{name}={value}" for name, value in self.flags.items())
        return (program, compiler.name, compiler.version(), layout.target.name, str(layout.lnc), *flags)


def toolchain(options: CompileOptions) -> Toolchain:
    """Return what compiles in the mode that is on.

    The target is the one of ``options``, else ``NEURON_PLATFORM_TARGET_OVERRIDE``, else the instance's. Where graphs
    run, the compiler is the one whose NEFFs the runtime loads. Where they are only compiled, ``TORCH_NEURONX_RUNTIME``
    names that runtime and it need not start; ``auto`` then is the chip's if its compiler is here. Raises
    :class:`ConfigurationError` for a target, a flag or a variable that cannot be used and
    :class:`RuntimeUnavailableError` where there is no such compiler or runtime.
    """
    options = in_force(options)
    flags = compiler_flags(options)
    if current_options() is None:
        runtime = select_runtime()
        compiler = select_compiler(runtime.name)
        layout = runtime.layout() if options.target is None else _layout(options.target)
    else:
        compiler = select_compiler(_runtime_to_compile_for())
        layout = _layout_to_compile_for(options.target)
    for name, value in (("--target", layout.target.name), ("--lnc", str(layout.lnc))):
        if flags.pop(name, value) != value:
            raise OptionError(
                f"The flags for neuronx-cc set {name} to another value than the {value} that is compiled for. Leave it "
                f"out, and use {config.PLATFORM_TARGET_OVERRIDE.name} or {config.LOGICAL_NC_CONFIG.name}."
            )
    return Toolchain(compiler, layout, flags)


def select_compiler(runtime: str) -> Compiler:
    """Return the compiler whose NEFFs the runtime of that name loads.

    Raises :class:`RuntimeUnavailableError` if no plugin registers one.
    """
    compilers = plugins.manager().compilers()
    for compiler in compilers.values():
        if compiler.runtime == runtime:
            return compiler
    raise RuntimeUnavailableError(
        f"No installed compiler makes NEFFs for the runtime {runtime!r}; installed are: "
        f"{', '.join(sorted(compilers)) or 'none'}. Set TORCH_NEURONX_RUNTIME=emulator, or install a compiler plugin."
    )


def _runtime_to_compile_for() -> str:
    name = config.get(config.RUNTIME)
    if name != AUTO:
        return name
    try:
        select_compiler(CHIP).version()
    except RuntimeUnavailableError:
        return select_runtime().name
    return CHIP


def _layout_to_compile_for(target: str | None) -> CoreLayout:
    target = target or config.get(config.PLATFORM_TARGET_OVERRIDE)
    if target is not None:
        return _layout(target)
    try:
        return select_runtime().layout()
    except (RuntimeUnavailableError, NEFFExecutionError) as error:
        _say_default_target(str(error))
        return _layout(DEFAULT_TARGET)


def _layout(target: str) -> CoreLayout:
    return lay_out_cores(find_target(target, plugins.manager().targets()))


@cache
def _say_default_target(error: str) -> None:
    logger("compile").warning(
        "Compile-only: no instance says which chip to compile for, so it is %s; set %s to choose. %s",
        DEFAULT_TARGET,
        config.PLATFORM_TARGET_OVERRIDE.name,
        error,
    )
