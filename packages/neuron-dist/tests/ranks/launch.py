"""Starts programs: forked from a process that has imported torch, or in a fresh interpreter as users do."""

import ctypes
import importlib
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import traceback
from dataclasses import dataclass
from io import TextIOWrapper
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any, Self

LIMIT = 300
"""Seconds for one program; the machine may be busy."""

PRELOAD = (
    "torch",
    "torch.distributed.run",
    "torch.distributed.tensor.parallel",
    "torch.distributed.fsdp",
    "torch.distributed.checkpoint.state_dict",
    "torch.distributed.pipelining",
    "torch.distributed.tensor.experimental",
    "torch.nn.modules.linear_cross_entropy",
    "torch.distributed.optim",
    "torch._functorch.aot_autograd",
    "torch._inductor.compile_fx",
    "torch_mlir.fx",
    "torch_neuronx_compile.capture.aot",
    "torch_neuronx_compile.compilers.emulator.compiler",
    "torch_neuronx_compile.decompositions.table",
    "torch_neuronx_compile.lowering.lower",
    "torch_neuronx_compile.passes.pipeline",
    "torch_neuronx_compile.worker.client",
    "jax",
    "pytest",
)
"""What ranks import sooner or later, and what takes most of their time; none of it opens the device."""


def forking() -> ForkServerContext:
    """The context whose processes are forked from one that has imported what ranks need."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOAD))
    return context


def environment(**extra: str) -> dict[str, str]:
    """The environment of a program: this one's, one thread, and ``extra``."""
    return {**os.environ, "OMP_NUM_THREADS": "1", **extra}


class Program:
    """A program in a forked process of its own.

    The program calls ``report(value)``; :meth:`next_report` returns the values one by one.
    """

    def __init__(self, program: str, **extra: str) -> None:
        context = forking()
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_run, args=(textwrap.dedent(program), environment(**extra), theirs))
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        pid = self._process.pid
        assert pid is not None
        return pid

    def next_report(self) -> Any:
        """Wait for what the program reports next; what it raises fails the test."""
        assert self._pipe.poll(LIMIT), "the program reports nothing"
        error, value = self._pipe.recv()
        assert error is None, error
        return value

    def kill(self) -> None:
        """Kill the process, as a crash would."""
        self._process.kill()
        self._process.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._pipe.close()


def _run(program: str, environ: dict[str, str], pipe: Connection) -> None:
    os.environ.clear()
    os.environ.update(environ)
    try:
        exec(program, {"report": lambda value: pipe.send((None, value))})
    except Exception:
        pipe.send((traceback.format_exc(), None))


def report_of(program: str, **extra: str) -> Any:
    """Run a program in a forked process and return the first value that it reports."""
    with Program(program, **extra) as running:
        return running.next_report()


def fresh(program: str, **extra: str) -> str:
    """Run ``program`` in a new interpreter and return what it printed."""
    return _output([sys.executable, "-c", textwrap.dedent(program)], **extra)


def torchrun_command(ranks: int, script: Path, *arguments: str) -> str:
    """Run a script with the command ``torchrun``, in new interpreters, and return what the ranks printed."""
    options = ["--standalone", f"--nproc-per-node={ranks}"]
    return _output([sys.executable, "-m", "torch.distributed.run", *options, str(script), *arguments])


def _output(command: list[str], **extra: str) -> str:
    result = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=environment(**extra))
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


# torchrun, forked -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ended:
    """How a launcher ended, and what it and its ranks printed."""

    code: int | None
    out: str
    err: str


class Torchrun:
    """A launcher and its ranks in forked processes: torchrun with its own ``--start-method=fork`` and ``--run-path``.

    ``namespace`` is the network namespace they run in; ``None`` is this one.
    """

    def __init__(
        self,
        script: Path,
        *options: str,
        arguments: tuple[str, ...] = (),
        namespace: str | None = None,
        **extra: str,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._files = tuple(Path(self._folder.name) / name for name in ("out", "err"))
        script = script.resolve()
        words = ["--start-method=fork", "--run-path", *options, str(script), *arguments]
        places = tuple(map(str, self._files))
        self._process = forking().Process(
            target=_launch, args=(str(script.parent), words, environment(**extra), places, namespace)
        )
        self._process.start()

    def end(self) -> Ended:
        """Wait until the launcher has ended; a launcher that does not fails the test."""
        self._process.join(LIMIT)
        ended = Ended(self._process.exitcode, *(file.read_text() for file in self._files))
        assert ended.code is not None, f"torchrun does not end: {ended}"
        return ended

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.is_alive():
            assert self._process.pid is not None
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.join()
        self._folder.cleanup()


def _launch(
    folder: str, words: list[str], environ: dict[str, str], files: tuple[str, ...], namespace: str | None
) -> None:
    from torch.distributed.run import main

    os.setpgid(0, 0)
    os.environ.clear()
    os.environ.update(environ)
    for descriptor, file in enumerate(files, start=1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
    if isinstance(sys.stdout, TextIOWrapper):
        # Under PYTHONUNBUFFERED a line and its end are two writes, and another rank's line may come between them.
        sys.stdout.reconfigure(write_through=False)
    if namespace is not None:
        _enter(namespace)
    sys.path.insert(0, folder)  # as for a script that an interpreter runs
    main(words)


def _enter(namespace: str) -> None:
    """Move this process into a network namespace that ``ip netns`` made."""
    new_network = 0x4000_0000  # CLONE_NEWNET
    libc = ctypes.CDLL(None, use_errno=True)
    with Path("/run/netns", namespace).open() as place:
        if libc.setns(place.fileno(), new_network) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter the network namespace {namespace}")


def run_torchrun(script: Path, *options: str, arguments: tuple[str, ...] = (), **extra: str) -> Ended:
    """Run a script under torchrun with these options and return how it ended."""
    with Torchrun(script, *options, arguments=arguments, **extra) as running:
        return running.end()


def torchrun(ranks: int, script: Path, *arguments: str, **extra: str) -> str:
    """Run a script on ``ranks`` ranks of this machine and return what they printed."""
    ended = run_torchrun(script, "--standalone", f"--nproc-per-node={ranks}", arguments=arguments, **extra)
    assert ended.code == 0, ended.err
    return ended.out


def run_example(folder: str, name: str, *arguments: list[str]) -> None:
    """Run an example's main function on this rank."""
    if folder not in sys.path:
        sys.path.insert(0, folder)
    importlib.import_module(name).main(*arguments)
