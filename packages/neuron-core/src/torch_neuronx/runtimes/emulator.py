"""The emulator: cores of a chip in this machine's memory, NEFFs through the compiler that made them."""

from dataclasses import replace

from torch_neuronx import config
from torch_neuronx.compilers import ExecutableLoader
from torch_neuronx.errors import MissingExtraError
from torch_neuronx.neff import check_made_for, read_header, unpack
from torch_neuronx.runtimes import launcher
from torch_neuronx.runtimes.interface import Availability, Executable, MemoryInfo, Runtime
from torch_neuronx.targets import CoreLayout, core_layout


class EmulatorRuntime(Runtime):
    """Emulates one chip. The device allocator, which the C++ core owns, does the accounting."""

    name = "emulator"
    eager = True

    def available(self) -> Availability:
        """Say yes: it needs nothing but this machine."""
        return Availability(True)

    def enter_thread(self) -> None:
        """Let ``backward()`` run in the thread that calls it, as it does for CPU tensors.

        Kernels use the calling thread's OpenMP workers. A device thread of autograd would bring workers of its own, and
        the two teams would take turns on the same processors: forward, backward and optimizer all became slower.
        """
        import torch

        torch.autograd.set_multithreading_enabled(False)

    def layout(self) -> CoreLayout:
        """Return the emulated cores, with the memory that ``TORCH_NEURONX_EMULATOR_HBM_BYTES`` sets.

        A process that a launcher started sees one: the core of its local rank.
        """
        layout = launcher.pin(core_layout())
        hbm = config.get(config.EMULATOR_HBM_BYTES)
        return layout if hbm is None else replace(layout, hbm_bytes_per_core=hbm)

    def reserve(self, layout: CoreLayout) -> None:
        """Keep the cores for this process, under a launcher and where the user asks for it."""
        launched = config.get(config.LOCAL_RANK) is not None
        if (launched or config.get(config.RESERVE_CORES)) and not config.get(config.EMULATOR_RELAXED):
            from torch_neuronx.runtimes.reservation import reserve

            reserve(layout.logical_cores)

    def memory_info(self, core: int) -> MemoryInfo:
        """Return the memory of device index ``core`` as the allocator accounts it; imports torch."""
        import torch

        free, total = torch.accelerator.get_memory_info(core)
        return MemoryInfo(used=total - free, limit=total)

    def load(self, neff: bytes, core: int) -> Executable:
        """Load a NEFF that a compiler made for the emulator.

        Raises :class:`NeffMismatchError` for the chip's NEFFs and :class:`MissingExtraError` if no installed compiler
        can run it here.
        """
        from torch_neuronx import plugins  # the plugin manager carries this runtime

        check_made_for(read_header(neff), self.name)
        for compiler in plugins.manager().compilers().values():
            if compiler.runtime == self.name and isinstance(compiler, ExecutableLoader):
                return compiler.load(unpack(neff), core)
        raise MissingExtraError.for_extra("compile", "Running a compiled program on the emulator")

    def close(self) -> None:
        """Do nothing: the memory belongs to the allocator."""
