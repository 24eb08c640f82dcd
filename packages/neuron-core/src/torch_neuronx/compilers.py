"""What a compiler is: StableHLO in, NEFF bytes out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch_neuronx.neff import Neff
from torch_neuronx.runtimes.interface import Executable


@dataclass(frozen=True, slots=True)
class CompileRequest:
    """One program for a compiler."""

    program: bytes
    """A StableHLO module in portable (VHLO) bytecode."""
    graph: str
    """Name for artifacts and messages."""
    target: str
    """Name of a registered target."""
    lnc: int
    """Physical cores per logical core, 1 or 2."""
    options: Mapping[str, str]
    """What the user set for this compiler; part of the key."""


@runtime_checkable
class Compiler(Protocol):
    """Turns a program into a NEFF."""

    @property
    def name(self) -> str:
        """Unique name, ``neuronx-cc``."""

    @property
    def runtime(self) -> str:
        """Name of the runtime that its NEFFs are for; the NEFF's header says the same (`Neff.made_for`)."""

    def version(self) -> str:
        """Return the version that goes into cache keys, or raise :class:`RuntimeUnavailableError` if it is absent."""

    def compile(self, request: CompileRequest) -> bytes:
        """Return the NEFF, or raise :class:`NEFFCompilationError` with what the compiler said."""


@runtime_checkable
class ExecutableLoader(Protocol):
    """A compiler whose NEFFs run in this process: the emulator's runtime asks it for the executable."""

    def load(self, neff: Neff, core: int) -> Executable:
        """Return an executable for device index ``core``, or raise :class:`NEFFExecutionError`."""


@runtime_checkable
class Preparing(Protocol):
    """A compiler whose NEFFs run in this process, which then takes a while to get ready for the first one."""

    def get_ready(self) -> None:
        """Do what the first call would wait for; called once, in a thread, while the first program is made."""


@runtime_checkable
class HostDependent(Protocol):
    """A compiler whose code depends on the machine that compiles it."""

    def host(self) -> Mapping[str, str]:
        """Return named parts for cache keys: what a machine must have in common to run the code."""
