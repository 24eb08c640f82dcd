"""Several workers: which takes a task, what interrupts one, what is left behind, what a forked child has."""

import gc
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from torch_neuronx_compile.worker.client import Worker, WorkerError
from torch_neuronx_compile.worker.pool import SIZE, WorkerPool
from torch_neuronx_compile.worker.protocol import decode, encode


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    workers = WorkerPool(2, time_limit=60)
    yield workers
    workers.close()


def run(program: str) -> list[int]:
    """Run a program and return the numbers that it prints."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert not done.stderr
    return [int(word) for word in done.stdout.split()]


def wait_until(true: Callable[[], bool]) -> None:
    for _ in range(600):
        if true():
            return
        threading.Event().wait(0.05)
    pytest.fail("it did not happen within 30 s")


def gone(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def busy(pool: WorkerPool, calls: int) -> list[threading.Thread]:
    """Start threads whose tasks never end by themselves, and wait until each has a worker of its own."""

    def call() -> None:
        with pytest.raises(WorkerError, match=r"SIGKILL.*memory"):
            pool.call("signal:pause")

    threads = [threading.Thread(target=call) for _ in range(calls)]
    for thread in threads:
        thread.start()
    wait_until(lambda: sum(worker.alive for worker in pool._workers) == calls)
    return threads


def test_a_warm_worker_is_preferred(pool: WorkerPool) -> None:
    assert len({pool.call("os:getpid") for _ in range(4)}) == 1


def test_tasks_of_two_threads_run_at_the_same_time(pool: WorkerPool, tmp_path: Path) -> None:
    """Each end of a named pipe waits for the other to be opened."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    answers: list[object] = []
    threads = [
        threading.Thread(target=lambda flags=flags: answers.append(pool.call("os:open", path=str(pipe), flags=flags)))
        for flags in (os.O_RDONLY, os.O_WRONLY)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 2


def test_a_third_task_waits_for_its_turn(pool: WorkerPool) -> None:
    threads = busy(pool, 2)
    answers: list[int] = []
    third = threading.Thread(target=lambda: answers.append(pool.call("os:getpid")))
    third.start()
    assert not answers
    for worker in pool._workers:
        worker.end()
    for thread in [*threads, third]:
        thread.join()
    assert len(answers) == 1


def test_an_early_start_imports_what_lowering_needs(pool: WorkerPool) -> None:
    pool.start_early()
    pool.start_early()
    assert sum(worker.alive for worker in pool._workers) == 1
    with pytest.raises(WorkerError, match="parse"):  # the task's own error: what it needs was imported
        pool.call(
            "torch_neuronx_compile.worker.lower:lower",
            torch_module=b"junk",
            arguments={},
            custom_calls={},
            expansions={},
        )
    assert sum(worker.alive for worker in pool._workers) == 1


def test_nothing_is_left_behind(pool: WorkerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    pool.call("os:getpid")
    gc.collect()
    before = sorted(os.listdir("/proc/self/fd"))
    for i in range(200):
        assert pool.call("os:fspath", path=str(i)) == str(i)
        if i % 10 == 0:
            with pytest.raises(WorkerError):
                pool.call("os:abort")
    pool.call("os:getpid")
    assert len(os.listdir("/proc/self/fd")) == len(before)
    assert not list(tmp_path.iterdir())


def test_memory_that_runs_out_is_reported_and_survived() -> None:
    child = Worker(memory_limit=2**30)
    before = child.call("os:getpid")
    with pytest.raises(WorkerError, match=r"ran out of memory \(.*1073741824 bytes\)") as caught:
        child.call("builtins:bytearray", source=2**31)
    assert caught.value.fatal
    assert child.call("os:getpid") != before
    child.close()


def test_the_variable_limits_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_NEURONX_COMPILE_WORKER_MEMORY", "1GiB")
    child = Worker()
    with pytest.raises(WorkerError, match="ran out of memory"):
        child.call("builtins:bytearray", source=2**31)
    child.close()


def test_ctrl_c_cancels_the_task_only() -> None:
    """The signal goes to the process group, as a terminal sends it."""
    program = """
import os, signal, threading
from torch_neuronx_compile.worker.client import worker
os.setpgid(0, 0)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores the signal
before = worker().call("os:getpid")
threading.Timer(0.3, os.killpg, (os.getpgid(0), signal.SIGINT)).start()
try:
    worker().call("signal:pause")
except KeyboardInterrupt:
    print(before, worker().call("os:getpid"))
"""
    before, after = run(program)
    assert before != after
    wait_until(lambda: gone(before) and gone(after))


def test_ctrl_c_leaves_an_idle_worker_alone() -> None:
    program = """
import os, signal
from torch_neuronx_compile.worker.client import worker
os.setpgid(0, 0)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores the signal
before = worker().call("os:getpid")
try:
    os.killpg(os.getpgid(0), signal.SIGINT)
    signal.pause()
except KeyboardInterrupt:
    print(before, worker().call("os:getpid"))
"""
    before, after = run(program)
    assert before == after


@pytest.mark.parametrize("task", ["os:getpid", "signal:pause"])
def test_a_killed_parent_takes_its_workers_along(task: str) -> None:
    """Also one in the middle of a task."""
    program = f"""
import os, sys, threading, time
from torch_neuronx_compile.worker.client import worker
print(worker().call("os:getpid"), flush=True)
if {task!r} != "os:getpid":
    threading.Thread(target=worker().call, args=({task!r},), daemon=True).start()
    time.sleep(0.3)
print("ready", flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert parent.stdout.readline() == "ready\n"
        parent.kill()
    wait_until(lambda: gone(child))


def test_a_busy_worker_does_not_delay_the_exit() -> None:
    program = """
import threading, time
from torch_neuronx_compile.worker.client import worker
print(worker().call("os:getpid"))
threading.Thread(target=worker().call, args=("signal:pause",), daemon=True).start()
time.sleep(0.3)
"""
    (child,) = run(program)
    wait_until(lambda: gone(child))


def test_a_forked_child_has_its_own_workers() -> None:
    program = """
import os
from torch_neuronx_compile.worker.client import worker
print(worker().call("os:getpid"), flush=True)
if (child := os.fork()) == 0:
    print(worker().call("os:getpid"), flush=True)
    raise SystemExit
os.waitpid(child, 0)
print(worker().call("os:getpid"))
"""
    parents, childs, again = run(program)
    assert parents == again
    assert parents != childs
    wait_until(lambda: gone(childs) and gone(parents))


def test_a_fork_during_a_call_does_not_lock_the_child() -> None:
    program = """
import os, threading, time
from torch_neuronx_compile.worker.client import worker
threading.Thread(target=worker().call, args=("signal:pause",), daemon=True).start()
time.sleep(0.3)
if (child := os.fork()) == 0:
    print(worker().call("os:getppid") - os.getpid(), flush=True)
    raise SystemExit
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert run(program) == [0, 0]


def test_workers_start_when_something_is_traced_and_not_where_it_is_found(tmp_path: Path) -> None:
    program = """
import sys, torch
print("torch_neuronx_compile.worker" in sys.modules)
compiled = torch.compile(lambda x: x.cos(), backend="neuron")
from torch_neuronx_compile.worker.client import worker
alive = lambda: sum(child.alive for child in worker()._workers)
print(alive())
compiled(torch.ones(2, device="neuron"))
print(alive())
compiled(torch.ones(2, device="neuron", requires_grad=True)).sum().backward()
print(alive())
"""
    environment = {
        **os.environ,
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"),
        "TORCH_NEURONX_NEFF_CACHE_DIR": str(tmp_path / "neff"),
        "TORCH_NEURONX_HLO_CACHE_DIR": str(tmp_path / "hlo"),
        "TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR": str(tmp_path / "local"),
    }
    for started in (["1", str(SIZE)], ["0", "0"]):
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300, env=environment
        )
        assert done.stdout.split() == ["False", "0", *started]


class TestMessages:
    @pytest.mark.parametrize("value", [None, True, 3, 2**70, 0.5, "text", b"bytes", [1, (2,)], {"a": {1: b""}}, {1}])
    def test_plain_values_cross(self, value: object) -> None:
        assert decode(encode(value)) == value

    @pytest.mark.parametrize("value", [print, Path("/"), object(), [Worker], {"a": lambda: 0}])
    def test_others_are_refused_by_the_sender(self, value: object) -> None:
        with pytest.raises(TypeError, match="does not cross"):
            encode(value)

    def test_others_are_refused_by_the_receiver(self) -> None:
        with pytest.raises(pickle.UnpicklingError, match=r"os.*getcwd"):
            decode(pickle.dumps(os.getcwd))

    def test_an_argument_that_does_not_cross_costs_no_worker(self, pool: WorkerPool) -> None:
        before = pool.call("os:getpid")
        with pytest.raises(TypeError, match="PosixPath does not cross"):
            pool.call("os:fspath", path=Path("/"))
        assert pool.call("os:getpid") == before

    def test_an_answer_that_does_not_cross_is_an_error_of_the_task(self, pool: WorkerPool) -> None:
        with pytest.raises(WorkerError, match="does not cross") as caught:
            pool.call("threading:Lock")
        assert not caught.value.fatal
