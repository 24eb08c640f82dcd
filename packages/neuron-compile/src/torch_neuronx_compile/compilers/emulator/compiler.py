"""The compiler ``emulator``: it makes NEFFs that the emulator runs, and runs them for it."""

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path

from torch_neuronx import neff, plugins
from torch_neuronx.compilers import CompileRequest
from torch_neuronx.errors import NEFFCompilationError, NEFFExecutionError
from torch_neuronx.runtimes.interface import Executable
from torch_neuronx_compile.compilers.emulator.host import host_features
from torch_neuronx_compile.worker.client import WorkerError, worker

PROGRAM = "program.stablehlo"
"""The program as it was keyed: any later version of XLA can compile it again."""
XLA_EXECUTABLE = "xla_cpu_executable"
TENSORS = "tensors.json"
"""Shapes and dtypes of inputs and outputs, in the program's order."""
HANDLERS = "handlers.json"
"""Custom-call targets of plugins' handlers that the executable calls."""
STEPS = "steps.json"
"""A small program as calls of ATen, which then run in place of the executable."""


class EmulatorCompiler:
    """XLA:CPU behind the compiler interface."""

    name = "emulator"
    runtime = "emulator"

    def version(self) -> str:
        """Return what decides the code: this package, XLA, the rewriting in front of it, and plugins' collectives."""
        parts = [metadata.version("torch-neuronx-compile"), f"jaxlib-{metadata.version('jaxlib')}", _rewriting()]
        collectives = plugins.manager().collectives().values()
        facts = sorted(f"{found.op}-{found.custom_call}-{found.fingerprint}" for found in collectives)
        if facts:
            parts.append(hashlib.sha256("\0".join(facts).encode()).hexdigest()[:16])
        return "+".join(parts)

    def host(self) -> Mapping[str, str]:
        """Return the class of this machine's processor: XLA compiles for it, and its code runs on no lesser one."""
        return {"host features": host_features()}

    def compile(self, request: CompileRequest) -> bytes:
        """Compile in the worker; raises :class:`NEFFCompilationError` with XLA's words."""
        lowerings = plugins.manager().lowerings().values()
        collectives = plugins.manager().collectives().values()
        try:
            executable, tensors, handlers, steps = worker().call(
                "torch_neuronx_compile.compilers.emulator.xla:compile_program",
                program=request.program,
                calls={found.custom_call: (found.ordered, found.mutates) for found in lowerings},
                collectives={found.op: found.custom_call for found in collectives},
                stubs={found.custom_call: found.worker_stub for found in lowerings if found.worker_stub},
            )
        except WorkerError as error:
            detail = f"\n{error.diagnostics}" if error.diagnostics else ""
            raise NEFFCompilationError(error.reason.strip() + detail) from None
        files = {
            PROGRAM: request.program,
            XLA_EXECUTABLE: executable,
            TENSORS: json.dumps(tensors).encode(),
            HANDLERS: json.dumps(handlers).encode(),
        }
        if steps is not None:
            files[STEPS] = json.dumps(steps).encode()
        return neff.pack(
            files,
            name=request.graph,
            made_for=self.runtime,
            version=self.version(),
            cores=request.lnc,
            lnc=request.lnc,
        )

    def get_ready(self) -> None:
        """Import what running a program takes, while the worker makes one."""
        from torch_neuronx_compile.compilers.emulator.executable import get_ready

        get_ready()

    def load(self, neff: neff.Neff, core: int) -> Executable:
        """Load the executable of this version of XLA, or raise :class:`NEFFExecutionError`."""
        from torch_neuronx_compile.compilers.emulator.executable import XlaExecutable
        from torch_neuronx_compile.compilers.emulator.handlers import register_plugin_handlers

        missing = {XLA_EXECUTABLE, TENSORS, HANDLERS} - neff.files.keys()
        if missing:
            raise NEFFExecutionError(
                f"The NEFF {neff.header.name!r} lacks {', '.join(sorted(missing))}. Compile the program again."
            )
        register_plugin_handlers(neff.header.name, json.loads(neff.files[HANDLERS]))
        steps = json.loads(neff.files[STEPS]) if STEPS in neff.files else None
        return XlaExecutable(neff.header.name, neff.files[XLA_EXECUTABLE], json.loads(neff.files[TENSORS]), core, steps)


@cache
def _rewriting() -> str:
    """Return a fingerprint of the sources that turn a program into what XLA compiles."""
    folder = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(f"\0{path.relative_to(folder)}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
