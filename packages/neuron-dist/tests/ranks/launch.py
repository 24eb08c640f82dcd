"""Starts programs as users do: a fresh interpreter, or torchrun."""

import importlib
import multiprocessing
import os
import subprocess
import sys
import textwrap
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

LIMIT = 180
"""Seconds for one program; the machine may be busy."""


def environment(**extra: str) -> dict[str, str]:
    """The environment of a program: this one's, one thread, and ``extra``."""
    return {**os.environ, "OMP_NUM_THREADS": "1", **extra}


class Program:
    """A program in a process of its own, forked from one that has imported torch, which takes most of the time.

    The program calls ``report(value)``; :meth:`next_report` returns the values one by one.
    """

    def __init__(self, program: str, **extra: str) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["torch", "torch.distributed"])
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_run, args=(program, environment(**extra), theirs))
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


def fresh(program: str, **extra: str) -> str:
    """Run ``program`` in a new interpreter and return what it printed."""
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        env=environment(**extra),
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def run_torchrun(
    script: Path, *options: str, arguments: tuple[str, ...] = (), **extra: str
) -> subprocess.CompletedProcess[str]:
    """Run a script under torchrun with these options and return how it ended."""
    command = [sys.executable, "-m", "torch.distributed.run", *options, str(script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=environment(**extra))


def torchrun(ranks: int, script: Path, *arguments: str, **extra: str) -> str:
    """Run a script on ``ranks`` ranks of this machine and return what they printed."""
    result = run_torchrun(script, "--standalone", f"--nproc-per-node={ranks}", arguments=arguments, **extra)
    assert result.returncode == 0, result.stderr
    return result.stdout


def run_example(folder: str, name: str, *arguments: list[str]) -> None:
    """Run an example's main function on this rank."""
    if folder not in sys.path:
        sys.path.insert(0, folder)
    importlib.import_module(name).main(*arguments)
