"""Fixtures of the device's contract tests."""

import json
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from torch_neuronx.testing import isolation


@dataclass(frozen=True)
class Finished:
    """A case that ran in a fresh process: exit status (``None``: it hung; negative: a signal) and what it printed."""

    status: int | None
    out: str
    err: str

    @property
    def answer(self) -> Any:
        """The JSON document on the last line of standard output, if the case ended well."""
        assert self.status == 0, f"status {self.status}\n{self.out}\n{self.err}"
        return json.loads(self.out.splitlines()[-1])


Fresh = Callable[..., Finished]


def _serve(**environment: str) -> Iterator[Fresh]:
    command = [sys.executable, "-W", "error", str(Path(__file__).with_name("fresh_processes.py")), isolation.__file__]
    with isolation.IsolatedWorker(command, time_limit=240, environment=environment) as worker:

        def run(code: str, *, seconds: float = 120, **environment: str) -> Finished:
            case = {"code": textwrap.dedent(code), "environment": environment, "seconds": seconds}
            outcome = worker.run(case)
            assert outcome.verdict is isolation.Verdict.ANSWERED, outcome
            return Finished(**outcome.answer)

        yield run


@pytest.fixture(scope="session")
def fresh() -> Iterator[Fresh]:
    """Run code in a process that has imported torch and nothing else, with more environment variables by keyword."""
    yield from _serve()


@pytest.fixture(scope="session")
def fresh_without_device() -> Iterator[Fresh]:
    """The same, where torch was imported with its autoload turned off."""
    yield from _serve(TORCH_DEVICE_BACKEND_AUTOLOAD="0")
