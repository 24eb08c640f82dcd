"""Whatever happens in the worker, the user's process gets an exception and the next task runs."""

import os
import subprocess
import sys
import threading

import pytest

from torch_neuronx_compile.worker.client import Worker, WorkerError


@pytest.fixture
def child() -> "Worker":
    worker = Worker(time_limit=30)
    yield worker
    worker.close()


def test_a_task_returns_from_another_process(child: Worker) -> None:
    assert child.call("os:getpid") != os.getpid()
    assert child.call("os:getpid") == child.call("os:getpid")


def test_an_abort_is_reported_and_survived(child: Worker) -> None:
    before = child.call("os:getpid")
    with pytest.raises(WorkerError, match="died of SIGABRT") as caught:
        child.call("os:abort")
    assert caught.value.fatal
    assert child.call("os:getpid") != before


def test_a_hang_ends_at_the_time_limit() -> None:
    child = Worker(time_limit=3)
    child.call("os:getpid")
    with pytest.raises(WorkerError, match="did not finish within 3 s") as caught:
        child.call("signal:pause")
    assert caught.value.fatal
    assert child.call("os:getcwd") == os.getcwd()
    child.close()


def test_an_exception_is_reported_with_its_traceback(child: Worker) -> None:
    with pytest.raises(WorkerError, match="FileNotFoundError") as caught:
        child.call("os:listdir", path="/no/such/folder")
    assert not caught.value.fatal
    assert child.call("os:getpid")


def test_what_the_task_writes_to_stderr_is_kept(child: Worker) -> None:
    with pytest.raises(WorkerError) as caught:
        child.call(
            "torch_neuronx_compile.worker.lower:lower",
            torch_module=b"junk",
            arguments={},
            custom_calls={},
            expansions={},
        )
    assert "parse" in caught.value.reason + caught.value.diagnostics


def test_threads_take_turns(child: Worker) -> None:
    answers: list[str] = []
    threads = [
        threading.Thread(target=lambda i=i: answers.append(child.call("os:fspath", path=str(i)))) for i in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [str(i) for i in range(8)]


def test_the_child_ends_with_its_parent() -> None:
    program = (
        "from torch_neuronx_compile.worker.client import worker; print(worker().call('os:getpid'), flush=True);"
        "import os; os._exit(0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    child = int(done.stdout)
    for _ in range(100):
        try:
            os.kill(child, 0)
        except ProcessLookupError:
            return
        threading.Event().wait(0.1)
    pytest.fail(f"the worker {child} outlived its parent")


def test_the_worker_imports_no_torch(child: Worker) -> None:
    program = """
import sys
import torch_neuronx_compile.worker.__main__, torch_neuronx_compile.worker.lower
import torch_neuronx_compile.compilers.emulator.xla
print([name for name in ("torch", "jax") if name in sys.modules])
"""
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "[]"
