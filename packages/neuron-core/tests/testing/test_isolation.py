"""Worker processes that may crash or hang."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from torch_neuronx.testing import IsolatedWorker, Verdict

WORKER = """
import os, sys, time
from torch_neuronx.testing import serve

def answer(case):
    print("printed, not answered")
    if case == "crash":
        os.abort()
    if case == "leave":
        sys.stderr.write("out of cheese")
        sys.exit(3)
    if case == "hang":
        time.sleep(600)
    return [case, os.getpid()]

serve(answer)
"""


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[IsolatedWorker]:
    program = tmp_path / "worker.py"
    program.write_text(WORKER)
    with IsolatedWorker([sys.executable, str(program)], time_limit=3.0) as worker:
        yield worker


def test_answers_in_one_process(worker: IsolatedWorker) -> None:
    first, second = worker.run({"n": 1}), worker.run("x" * 300_000)
    assert first.verdict is second.verdict is Verdict.ANSWERED
    assert first.answer[0] == {"n": 1}
    assert second.answer == ["x" * 300_000, first.answer[1]]


@pytest.mark.parametrize(("case", "detail"), [("crash", "signal 6"), ("leave", "out of cheese")])
def test_a_crash_costs_one_case(worker: IsolatedWorker, case: str, detail: str) -> None:
    before = worker.run(1).answer[1]
    outcome = worker.run(case)
    assert outcome.verdict is Verdict.CRASHED
    assert detail in outcome.detail
    after = worker.run(2)
    assert after.answer[0] == 2
    assert after.answer[1] != before


def test_a_hang_costs_one_case(worker: IsolatedWorker) -> None:
    outcome = worker.run("hang")
    assert outcome.verdict is Verdict.TIMED_OUT
    assert "no answer in 3 s" in outcome.detail
    assert worker.run(2).answer[0] == 2


def test_a_worker_that_does_not_start_says_why() -> None:
    command = [sys.executable, "-c", "raise SystemExit('no such door')"]
    with IsolatedWorker(command, time_limit=1.0) as worker, pytest.raises(RuntimeError, match="no such door"):
        worker.run(1)
