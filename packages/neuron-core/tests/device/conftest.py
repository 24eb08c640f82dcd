"""Fixtures of the device's contract tests."""

import json
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from torch_neuronx.testing.isolation import IsolatedWorker, Verdict


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


@pytest.fixture(scope="session")
def _processes() -> Iterator[IsolatedWorker]:
    command = [sys.executable, "-W", "error", str(Path(__file__).with_name("fresh_processes.py"))]
    with IsolatedWorker(command, time_limit=180) as worker:
        yield worker


@pytest.fixture(scope="session")
def fresh(_processes: IsolatedWorker) -> Fresh:
    """Run code in a process that has imported torch and nothing else, with more environment variables by keyword."""

    def run(code: str, *, seconds: float = 120, **environment: str) -> Finished:
        case = {"code": textwrap.dedent(code), "environment": environment, "seconds": seconds}
        outcome = _processes.run(case)
        assert outcome.verdict is Verdict.ANSWERED, outcome
        return Finished(**outcome.answer)

    return run
