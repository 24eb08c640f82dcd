"""What a runtime is. The emulator and libnrt implement it; a plugin may add another."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from torch_neuronx.targets import CoreLayout


@dataclass(frozen=True, slots=True)
class Availability:
    """Whether a runtime can start on this machine, and why not."""

    ok: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class MemoryInfo:
    """Device memory of one logical core, in bytes."""

    used: int
    limit: int


class Usage(StrEnum):
    """Which way a tensor of an executable goes."""

    INPUT = "input"
    OUTPUT = "output"


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One input or output of an executable."""

    name: str
    usage: Usage
    dtype: str
    """Name as torch spells it (``bfloat16``)."""
    shape: tuple[int, ...]
    nbytes: int


class Executable(ABC):
    """A NEFF that is loaded on one logical core."""

    @property
    @abstractmethod
    def tensors(self) -> tuple[TensorInfo, ...]:
        """Inputs, then outputs, each in the order of the program."""

    @abstractmethod
    def __call__(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Run on device buffers of the runtime's own kind, without a copy through the host.

        Raises :class:`NEFFExecutionError` with the runtime's status.
        """

    @abstractmethod
    def unload(self) -> None:
        """Give the device memory of the program back; a second call does nothing."""


class Runtime(ABC):
    """Owns the cores of a machine. Constructing one is cheap and opens nothing."""

    name: str
    eager: bool = False
    """Whether ``torch.device("neuron")`` can run operators one by one on it."""

    @abstractmethod
    def available(self) -> Availability:
        """Say whether the runtime can start here. Opens nothing and does not raise."""

    def enter_thread(self) -> None:  # noqa: B027 - a runtime may have nothing to prepare
        """Prepare the thread that opens the device; called once, before the first tensor. Does nothing by default."""

    @abstractmethod
    def layout(self) -> CoreLayout:
        """Return the cores that this process sees.

        Raises :class:`RuntimeUnavailableError` if the runtime cannot start, :class:`ConfigurationError` if the
        ``NEURON_*`` variables ask for cores that are not there.
        """

    def reserve(self, layout: CoreLayout) -> None:  # noqa: B027 - a runtime may do this elsewhere, or not at all
        """Keep the cores of ``layout`` for this process; called before the device opens. Does nothing by default.

        Raises :class:`CoreBusyError` if another process has one.
        """

    @abstractmethod
    def memory_info(self, core: int) -> MemoryInfo:
        """Return the memory of device index ``core``."""

    @abstractmethod
    def load(self, neff: bytes, core: int) -> Executable:
        """Load a NEFF on device index ``core``.

        Raises :class:`NeffFormatError`, :class:`NeffMismatchError` if it was made for another runtime, or
        :class:`NEFFExecutionError` if the runtime does not take it.
        """

    @abstractmethod
    def close(self) -> None:
        """Let the cores go; a second call does nothing."""
