"""A rank that dies, raises, leaves or hangs: the others end soon, with an error that says who and where."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ranks.launch import Program

RANK = """
import os, signal, time
from datetime import timedelta
import torch, torch.distributed as dist

rank = int(os.environ["RANK"])
dist.init_process_group("neuron", init_method="file://" + os.environ["STORE"], rank=rank, world_size=3)
tensor = torch.ones(4, device="neuron")
for _ in range(3):
    dist.all_reduce(tensor)
# The ranks are there and connected: from here on a wait is short, however long it took them to start.
dist.group.WORLD.set_timeout(timedelta(seconds=2))
report("ready")
FAIL = os.environ["FAIL"]

def collective():
    dist.all_reduce(tensor)

def ddp():
    layers = torch.nn.Linear(4, 4).to("neuron")
    model = torch.nn.parallel.DistributedDataParallel(layers)
    if rank == 2:
        fail()
    model(tensor).sum().backward()

def point():
    if rank == 0:
        dist.recv(tensor, 2)
    else:
        time.sleep(3600)

def fail():
    if FAIL == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if FAIL == "leaves":
        os._exit(0)
    if FAIL == "raises":
        raise ArithmeticError("rank 2 is wrong")
    time.sleep(3600)

try:
    if rank == 2 and os.environ["WORK"] != "ddp":
        fail()
    {"collective": collective, "ddp": ddp, "point": point}[os.environ["WORK"]]()
except Exception as error:
    report([type(error).__name__, str(error)])
    os._exit(1)  # as an unhandled error ends a program, without waiting for its threads
"""

CASES = {
    (fail, work): 1 if work == "point" else 2
    for fail, work in [
        ("dies", "collective"),
        ("raises", "collective"),
        ("leaves", "collective"),
        ("hangs", "collective"),
        ("hangs", "ddp"),
        ("dies", "point"),
    ]
}
"""How rank 2 of a job of three fails, and what the others do; with how many of them wait for it."""


class Job:
    """Three ranks, the last of which fails."""

    def __init__(self, folder: Path, fail: str, work: str, store: str = "store") -> None:
        """``folder`` holds the store and the cores' locks."""
        extra = {"STORE": str(folder / store), "XDG_RUNTIME_DIR": str(folder), "LOCAL_WORLD_SIZE": "3"}
        self._ranks = [
            Program(RANK, RANK=str(rank), LOCAL_RANK=str(rank), FAIL=fail, WORK=work, **extra) for rank in range(3)
        ]

    def wait_until_ready(self) -> None:
        for rank in self._ranks:
            assert rank.next_report() == "ready"

    def errors(self, waiting: int) -> list[Any]:
        """Return kind and text of what the first ranks raised."""
        return [rank.next_report() for rank in self._ranks[:waiting]]

    def kill(self) -> None:
        """Kill every rank at once."""
        for rank in self._ranks:
            rank.kill()
        for rank in self._ranks:
            with rank:
                pass


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, str], list[Any]]]:
    """What the others raised, by case. The jobs run side by side, for most of their time is a wait."""
    folder = tmp_path_factory.mktemp("jobs")
    jobs: dict[tuple[str, str], Job] = {}
    try:
        for case in CASES:
            place = folder / "-".join(case)
            place.mkdir()
            jobs[case] = Job(place, *case)
        for job in jobs.values():
            job.wait_until_ready()
        yield {case: jobs[case].errors(waiting) for case, waiting in CASES.items()}
    finally:
        for job in jobs.values():
            job.kill()


@pytest.mark.parametrize("fail", ["dies", "raises", "leaves", "hangs"])
def test_the_others_name_the_rank_and_the_collective(failed: dict[tuple[str, str], list[Any]], fail: str) -> None:
    for kind, text in failed[fail, "collective"]:
        assert kind == "DistBackendError"
        assert text.startswith("all_reduce (number 4 of group '0') failed on rank ")
        assert "rank 2 of the group did not arrive" in text
        assert "The transport says: " in text


def test_ddp_says_it_too(failed: dict[tuple[str, str], list[Any]]) -> None:
    for kind, text in failed["hangs", "ddp"]:
        assert kind == "DistBackendError"
        assert "all_reduce (number" in text
        assert "rank 2 of the group did not arrive" in text


def test_a_receive_names_its_sender(failed: dict[tuple[str, str], list[Any]]) -> None:
    ((kind, text),) = failed["dies", "point"]
    assert kind == "DistBackendError"
    assert text.startswith("recv of group '0' failed on rank 0: rank 2 did not take part.")


def test_cores_are_free_after_a_crash(tmp_path: Path) -> None:
    """Every rank killed at once, the job starts again on the same cores."""
    for attempt in range(2):
        job = Job(tmp_path, "hangs", "collective", store=f"store{attempt}")
        try:
            job.wait_until_ready()
        finally:
            job.kill()
