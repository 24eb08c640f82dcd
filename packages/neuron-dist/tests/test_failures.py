"""A rank that dies, raises or hangs: the others end within the timeout, with an error that says who and where."""

from pathlib import Path
from typing import Any

import pytest
from ranks.launch import Program

RANK = """
import os, signal, sys, time
from datetime import timedelta
import torch, torch.distributed as dist

rank = int(os.environ["RANK"])
dist.init_process_group(
    "neuron", init_method="file://" + os.environ["STORE"], rank=rank, world_size=3, timeout=timedelta(seconds=8)
)
tensor = torch.ones(4, device="neuron")
for _ in range(3):
    dist.all_reduce(tensor)
report("ready")
FAIL = os.environ["FAIL"]
started = time.monotonic()

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
        time.sleep(20)

def fail():
    if FAIL == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if FAIL == "raises":
        raise ArithmeticError("rank 2 is wrong")
    time.sleep(60)

try:
    if rank == 2 and os.environ["WORK"] != "ddp":
        fail()
    {"collective": collective, "ddp": ddp, "point": point}[os.environ["WORK"]]()
except Exception as error:
    report([type(error).__name__, str(error), time.monotonic() - started])
    os._exit(1)  # as an unhandled error ends a program, without waiting for its threads
"""


def run_ranks(folder: Path, fail: str, work: str) -> list[Any]:
    """Run three ranks of which number 2 fails, and return what ranks 0 and 1 raised."""
    extra = {"STORE": str(folder / "store"), "FAIL": fail, "WORK": work, "LOCAL_WORLD_SIZE": "3"}
    ranks = [Program(RANK, RANK=str(rank), LOCAL_RANK=str(rank), **extra) for rank in range(3)]
    try:
        for rank in ranks:
            assert rank.next_report() == "ready"
        waiting = ranks[:1] if work == "point" else ranks[:2]
        return [rank.next_report() for rank in waiting]
    finally:
        for rank in ranks:
            with rank:
                pass


@pytest.mark.parametrize("fail", ["dies", "raises", "hangs"])
def test_the_others_name_the_rank_and_the_collective(tmp_path: Path, fail: str) -> None:
    for kind, text, seconds in run_ranks(tmp_path, fail, "collective"):
        assert kind == "DistBackendError"
        assert text.startswith("all_reduce (number 4 of group '0') failed on rank ")
        assert "rank 2 of the group did not arrive" in text
        assert "The transport says: " in text
        assert seconds < 60  # the timeout is 8 s; the machine may be busy


def test_ddp_says_it_too(tmp_path: Path) -> None:
    for kind, text, _ in run_ranks(tmp_path, "hangs", "ddp"):
        assert kind == "DistBackendError"
        assert "all_reduce (number" in text
        assert "rank 2 of the group did not arrive" in text


def test_a_receive_names_its_sender(tmp_path: Path) -> None:
    ((kind, text, _),) = run_ranks(tmp_path, "dies", "point")
    assert kind == "DistBackendError"
    assert text.startswith("recv of group '0' failed on rank 0: rank 2 did not take part.")


def test_cores_are_free_after_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every rank killed at once, the job starts again on the same cores."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    for attempt in range(2):
        extra = {"STORE": str(tmp_path / f"store{attempt}"), "FAIL": "hangs", "WORK": "collective"}
        ranks = [Program(RANK, RANK=str(rank), LOCAL_RANK=str(rank), **extra) for rank in range(3)]
        try:
            for rank in ranks:
                assert rank.next_report() == "ready"
        finally:
            for rank in ranks:
                rank.kill()
                with rank:
                    pass
