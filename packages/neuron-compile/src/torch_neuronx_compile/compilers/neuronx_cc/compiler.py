"""The compiler ``neuronx-cc``: the command of that name, one run for each program.

No chip and no compiler were at hand when this was written: it is tested against a program that stands in for the
command and holds it to the documented command line.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from torch_neuronx import neff
from torch_neuronx.compilers import CompileRequest
from torch_neuronx.errors import NEFFCompilationError, NeffFormatError, RuntimeUnavailableError
from torch_neuronx_compile.compilers.neuronx_cc.flags import command_line
from torch_neuronx_compile.worker.client import WorkerError, worker

COMMAND = "neuronx-cc"
TIME_LIMIT = 3600.0
"""Seconds that one compilation may take."""
VERSION_TIME_LIMIT = 120.0
_TO_HLO = "torch_neuronx_compile.compilers.neuronx_cc.hlo:hlo_module"
_TOLD = 4096
"""How many characters of the compiler's own words an error repeats."""


class NeuronxCompiler:
    """The chip's compiler behind the compiler interface. Making one starts nothing."""

    name = COMMAND
    runtime = neff.CHIP

    def __init__(self, time_limit: float = TIME_LIMIT) -> None:
        """Prepare for compilations of at most ``time_limit`` seconds."""
        self._time_limit = time_limit

    def version(self) -> str:
        """Return what ``neuronx-cc --version`` says, asked once per process and file.

        Raises :class:`RuntimeUnavailableError` if the command is absent or does not answer.
        """
        command = _find()
        return _version(str(command), command.stat().st_mtime_ns)

    def compile(self, request: CompileRequest) -> bytes:
        """Run the command on the program in a directory of its own, and return the NEFF.

        Raises :class:`NEFFCompilationError` with the compiler's own words, its error codes first, if it fails, takes
        too long or leaves no NEFF, and :class:`RuntimeUnavailableError` if it is absent.
        """
        command = _find()
        try:
            program = worker().call(
                "torch_neuronx_compile.compilers.neuronx_cc.hlo:hlo_module", program=request.program
            )
        except WorkerError as error:
            raise NEFFCompilationError(f"{error.reason.strip()} {error.diagnostics}".strip()) from None
        with tempfile.TemporaryDirectory(prefix="neuronx-cc-") as directory:
            source, output, log = (Path(directory, name) for name in ("program.hlo.pb", "program.neff", "output.txt"))
            source.write_bytes(program)
            arguments = [
                str(command), "compile", str(source), "--framework", "XLA", "--target", request.target,
                "--lnc", str(request.lnc), *command_line(dict(request.options)), "--output", str(output),
            ]  # fmt: skip
            with log.open("wb") as stream:
                status = _run(arguments, directory, stream.fileno(), self._time_limit)
            said = log.read_text(errors="replace").strip()
            if status is None:
                raise NEFFCompilationError(_failure(f"did not finish within {self._time_limit:g} s", said))
            if status != 0:
                raise NEFFCompilationError(_failure(f"ended with {_describe(status)}", said))
            if not output.is_file():
                raise NEFFCompilationError(_failure("ended well and left no NEFF", said))
            made = output.read_bytes()
        try:
            header = neff.read_header(made)
        except NeffFormatError as error:
            raise NEFFCompilationError(_failure(f"left a file that is no NEFF ({error})", said)) from error
        if header.made_for != self.runtime:
            raise NEFFCompilationError(_failure(f"left a NEFF for the runtime {header.made_for!r}", said))
        return made


def _find() -> Path:
    found = shutil.which(COMMAND)
    if found is None:
        raise RuntimeUnavailableError(
            f"The chip's compiler, the command {COMMAND!r}, is not on the PATH. Install the package neuronx-cc of the "
            "AWS Neuron SDK, or set TORCH_NEURONX_RUNTIME=emulator to compile for the emulator."
        )
    return Path(found).absolute()


@cache
def _version(command: str, modified: int) -> str:
    try:
        done = subprocess.run(
            [command, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=VERSION_TIME_LIMIT,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeUnavailableError(f"`{command} --version` did not run: {error}. Reinstall neuronx-cc.") from error
    said = f"{done.stdout}\n{done.stderr}"
    found = re.search(r"[Vv]ersion\s+(\S+)", said) or re.search(r"^(\d+\.\S+)$", said, re.MULTILINE)
    if done.returncode != 0 or found is None:
        raise RuntimeUnavailableError(
            f"`{command} --version` ended with {_describe(done.returncode)} and no version: {said.strip()[-_TOLD:]!r}. "
            "Reinstall neuronx-cc."
        )
    return found[1]


def _run(arguments: list[str], directory: str, output: int, time_limit: float) -> int | None:
    """Return the exit status, or ``None`` after the time limit, with the command and what it started ended."""
    try:
        # A session of its own: the command starts others, and all of them must end with it.
        process = subprocess.Popen(
            arguments,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise RuntimeUnavailableError(f"`{arguments[0]}` did not start: {error}. Reinstall neuronx-cc.") from error
    try:
        return process.wait(time_limit)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.returncode is None:  # late, or the user interrupts: not before it is reaped may its number be reused
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _failure(what: str, said: str) -> str:
    codes = dict.fromkeys(re.findall(r"NCC_[A-Z]+\d+", said))
    named = f" ({', '.join(codes)})" if codes else ""
    return f"{COMMAND} {what}{named}. It said:\n{said[-_TOLD:] or 'nothing'}"


def _describe(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    with contextlib.suppress(ValueError):
        return signal.Signals(-status).name
    return f"signal {-status}"
