"""The chip's rules for ranks: order, one core each, and the same versions everywhere."""

import json
import os
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from ranks.launch import LIMIT, Program, report_of, run_torchrun

from torch_neuronx_dist import session
from torch_neuronx_dist.errors import RendezvousError, VersionMismatchError
from torch_neuronx_dist.rendezvous import wait_until_reachable
from torch_neuronx_dist.versions import Installation, check_same_versions, describe_difference, this_installation

CAUGHT = """
import torch, torch.distributed as dist
def start():
    dist.init_process_group("neuron", store=dist.HashStore(), rank=0, world_size=1)
said = []
def attempt(function):
    try:
        function()
        said.append("fine")
    except Exception as error:
        said.append(f"{type(error).__name__}: {error}")
def tensor():
    torch.ones(2, device="neuron")
"""


def attempts(program: str, **extra: str) -> list[Any]:
    """Run a program of attempts in a process of its own and return how each ended."""
    answers: list[Any] = report_of(f"{CAUGHT}\n{program}\nreport(said)", **extra)
    return answers


# Order ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("launcher", [{"LOCAL_RANK": "0"}, {"WORLD_SIZE": "2"}], ids=lambda e: next(iter(e)))
def test_a_rank_makes_its_group_before_its_first_tensor(launcher: dict[str, str]) -> None:
    program = "torch.neuron.set_device(0); attempt(tensor); attempt(tensor); attempt(start); attempt(tensor)"
    first, again, group, after = attempts(program, **launcher)
    assert first == again
    assert first.startswith("GroupOrderError")
    assert "init_process_group" in first
    assert (group, after) == ("fine", "fine")


def test_a_group_after_a_tensor_is_refused_without_a_launcher_too() -> None:
    program = "attempt(tensor); attempt(start)"
    free, late = attempts(program)
    assert free == "fine"
    assert late.startswith("GroupOrderError: This process made a tensor on device neuron before its first process")
    assert attempts(program, TORCH_NEURONX_EMULATOR_RELAXED="1") == ["fine", "fine"]


def test_a_group_of_cpu_tensors_counts(tmp_path: Path) -> None:
    program = """
def cpu():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
attempt(cpu); attempt(tensor); attempt(lambda: dist.new_group(backend="neuron"))
"""
    assert attempts(program, LOCAL_RANK="0") == ["fine"] * 3


# One core per rank ----------------------------------------------------------------------------------------------------


def test_a_rank_sees_its_core_as_the_first() -> None:
    program = """
start()
from torch_neuronx.device._opening import layout
said.append([torch.neuron.device_count(), layout().logical_cores[0].index])
attempt(lambda: torch.neuron.set_device(2)); said.append(torch.neuron.current_device())
attempt(lambda: torch.neuron.set_device(0)); attempt(lambda: torch.neuron.set_device(1))
"""
    *seen, other = attempts(program, LOCAL_RANK="2", NEURON_RT_NUM_CORES="3")
    assert seen == [[1, 2], "fine", 0, "fine"]
    assert other.startswith("DeviceError: There is no device neuron:1")


def test_visible_cores_are_dealt_out_in_their_order() -> None:
    program = "start(); from torch_neuronx.device._opening import layout; said.append(layout().logical_cores[0].index)"
    assert attempts(program, LOCAL_RANK="1", NEURON_RT_VISIBLE_CORES="3,2") == [2]


@pytest.mark.parametrize("launcher", [{"LOCAL_RANK": "4"}, {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "5"}], ids=str)
def test_more_ranks_than_cores(launcher: dict[str, str]) -> None:
    (said,) = attempts("attempt(start)", **launcher)
    assert said.startswith("TooManyRanksError: The launcher started 5 ranks on this host, which shows 4 Neuron cores")
    assert attempts("attempt(start); attempt(tensor)", TORCH_NEURONX_EMULATOR_RELAXED="1", **launcher) == ["fine"] * 2


HOLDER = """
import os, time, torch
torch.neuron.init()
child = os.fork()
if child == 0:
    time.sleep(600)
    os._exit(0)
report(child)
time.sleep(600)
"""


@pytest.mark.parametrize(
    "how", [{"LOCAL_RANK": "1"}, {"TORCH_NEURONX_EMULATOR_RESERVE_CORES": "1", "NEURON_RT_VISIBLE_CORES": "1"}], ids=str
)
def test_a_core_is_held_until_its_process_dies(how: dict[str, str], tmp_path: Path) -> None:
    extra = {**how, "XDG_RUNTIME_DIR": str(tmp_path)}
    with Program(HOLDER, **extra) as holder:
        child = holder.next_report()
        try:
            (busy,) = attempts("attempt(torch.neuron.init)", **extra)
            assert busy.startswith(f"CoreBusyError: Neuron core 1 is held by process {holder.pid}.")
            other = {"LOCAL_RANK": "0"} if "LOCAL_RANK" in how else {"NEURON_RT_VISIBLE_CORES": "0"}
            assert attempts("attempt(torch.neuron.init)", **{**extra, **other}) == ["fine"]
            free = {"XDG_RUNTIME_DIR": str(tmp_path), "NEURON_RT_VISIBLE_CORES": "1"}
            assert attempts("attempt(tensor)", **free) == ["fine"]
            holder.kill()
            os.kill(child, 0)  # a forked child lives on, and holds nothing
            assert attempts("attempt(torch.neuron.init)", **extra) == ["fine"]
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_directory_that_others_write_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "torch-neuronx").mkdir()
    (tmp_path / "torch-neuronx").chmod(0o777)
    (said,) = attempts("attempt(torch.neuron.init)", LOCAL_RANK="0", XDG_RUNTIME_DIR=str(tmp_path))
    assert said.startswith("PermissionError")


# Versions -------------------------------------------------------------------------------------------------------------


def rank_with(host: str, **changed: str) -> Installation:
    return Installation(host, {"torch": "2.13.0", "torch-neuronx": "2.13.0.1", **changed})


def test_the_odd_rank_is_named() -> None:
    same = [rank_with("a"), rank_with("a"), rank_with("b")]
    assert describe_difference(same) is None
    text = describe_difference([rank_with("a"), rank_with("b", torch="2.12.1"), rank_with("a")])
    assert text is not None
    assert text.startswith("Rank 1 on host b runs torch 2.12.1 instead of 2.13.0.")
    extra = describe_difference([rank_with("a"), rank_with("b", **{"torch-neuronx-nki": "1"})])
    assert extra is not None
    assert "torch-neuronx-nki 1 instead of (not installed)" in extra


def test_versions_go_through_the_store() -> None:
    store = dist.HashStore()
    mine = this_installation()
    assert {"python", "torch", "torch-neuronx", "torch-neuronx-dist"} <= mine.versions.keys()
    other = {"host": "elsewhere", "versions": {**mine.versions, "torch-neuronx": "2.12.9"}}
    store.set("neuron_versions/1", json.dumps(other))
    with pytest.raises(VersionMismatchError, match=r"Rank 1 on host elsewhere runs torch-neuronx 2\.12\.9 instead of"):
        check_same_versions(store, 0, 2)


def test_ranks_of_other_versions_do_not_start(tmp_path: Path) -> None:
    script = tmp_path / "odd.py"
    script.write_text("""
import os, torch.distributed as dist
from torch_neuronx import installed
if os.environ["RANK"] == "1":
    version = installed.version
    installed.version = lambda name: "9.9" if name == "torch-neuronx" else version(name)
try:
    dist.init_process_group("neuron")
except Exception as error:
    print(f"{type(error).__name__} {error}", flush=True)
""")
    result = run_torchrun(script, "--standalone", "--nproc-per-node=2")
    assert result.code == 0, result.err
    told = [line for line in result.out.splitlines() if line.startswith("VersionMismatchError Rank 1 on host ")]
    assert len(told) == 2
    assert "torch-neuronx 9.9 instead of" in told[0]


# Attempts -------------------------------------------------------------------------------------------------------------


def run_attempt(store: dist.Store, ranks: int) -> list[str]:
    """Let ranks agree, each in a thread of its own, the first one last."""
    with ThreadPoolExecutor(ranks) as pool:
        found = [pool.submit(session.agree, store, rank, ranks) for rank in reversed(range(ranks))]
        return [name.result(timeout=LIMIT) for name in found]


def test_the_ranks_of_an_attempt_agree_on_a_name_of_its_own() -> None:
    store = dist.HashStore()
    store.set("neuron_session/ask/1", "asked by a rank that died before it was answered")
    first, second = run_attempt(store, 3), run_attempt(store, 3)
    assert len(set(first)) == len(set(second)) == 1
    assert first != second
    assert run_attempt(store, 1) != run_attempt(store, 1)


def test_a_rank_that_does_not_come_is_named() -> None:
    store = dist.HashStore()
    store.set_timeout(timedelta(milliseconds=50))
    with pytest.raises(dist.DistStoreError, match=r"Ranks \[1\] of 2 did not come to the first process group"):
        session.agree(store, 0, 2)


@pytest.mark.parametrize("first", ["neuron", "gloo"])
def test_ranks_that_are_started_again_do_not_meet_the_first_ones(first: str, tmp_path: Path) -> None:
    script = tmp_path / "again.py"
    script.write_text(f"""
import os, signal, torch, torch.distributed as dist
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
assert os.environ["TORCHELASTIC_USE_AGENT_STORE"] == "True"
dist.init_process_group("{first}", init_method="{"env" if first == "neuron" else "neuron"}://")
group = dist.new_group(backend="neuron")
tensor = torch.full((4,), attempt + dist.get_rank(), device="neuron")
for _ in range(2):
    dist.all_reduce(tensor, group=group)
print(f"attempt {{attempt}} has {{tensor.tolist()}}", flush=True)
if attempt == 0 and dist.get_rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
if attempt == 0:
    signal.pause()
dist.destroy_process_group()
""")
    ended = run_torchrun(script, "--standalone", "--nproc-per-node=2", "--max-restarts=1")
    assert ended.code == 0, ended.err
    assert ended.out.count("attempt 1 has [6, 6, 6, 6]") == 2


# Rendezvous -----------------------------------------------------------------------------------------------------------


def test_an_unknown_host_is_an_error_at_once() -> None:
    with pytest.raises(RendezvousError, match=r"rendezvous at nowhere\.invalid:29500 cannot be reached"):
        wait_until_reachable("nowhere.invalid", 29500, timeout=3600)


def test_a_store_that_is_not_there_yet_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        wait_until_reachable("127.0.0.1", server.getsockname()[1], timeout=60)
    assert not caplog.records
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # holds the port, and does not listen
        port = nobody.getsockname()[1]
        with pytest.raises(RendezvousError, match=f"127.0.0.1:{port}"):
            wait_until_reachable("127.0.0.1", port, timeout=1)
    assert f"Nothing answers at the rendezvous 127.0.0.1:{port} yet" in caplog.text


def test_the_rendezvous_of_this_package_is_env_s() -> None:
    program = """
def meet():
    dist.init_process_group("neuron", init_method="neuron://")
attempt(meet); attempt(tensor)
"""
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    assert attempts(program, **alone) == ["fine", "fine"]
    lost = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "nowhere.invalid", "MASTER_PORT": "1"}
    (said, _) = attempts(program, **lost)
    assert said.startswith("RendezvousError: The rendezvous at nowhere.invalid")
