"""Forking, spawning and the device: a child of a process that used it gets an error and no hang."""

import multiprocessing
from typing import Any

import pytest

CHILD_OF_A_USER = """
import json, os, sys, time, torch
from torch_neuronx.errors import DeviceError

before = torch.randn(4, 4, device="neuron", requires_grad=True)
loss = (before @ before).sum()
generator = torch.Generator(device="neuron")
read, write = os.pipe()
if os.fork() == 0:
    answers = {"bad fork": torch.neuron._is_in_bad_fork(), "initialized": torch.neuron.is_initialized(),
               "count": torch.neuron.device_count(), "available": torch.neuron.is_available()}
    uses = {
        "factory": lambda: torch.ones(2, device="neuron"),
        "another core": lambda: torch.ones(2, device="neuron:1"),
        "tensor": lambda: torch.tensor([1.0], device="neuron"),
        "random": lambda: torch.rand(2, device="neuron"),
        "copy in": lambda: torch.ones(2).to("neuron"),
        "copy out": lambda: before.detach().cpu(),
        "item": lambda: loss.item(),
        "print": lambda: repr(before),
        "kernel": lambda: before + before,
        "in place": lambda: before.detach().add_(1),
        "fallback": lambda: torch.special.erfcx(before.detach()),
        "float64": lambda: before.detach().double(),
        "view and kernel": lambda: before.detach().view(16).sum(),
        "backward": lambda: loss.backward(),
        "save": lambda: torch.save(before, os.devnull),
        "init": lambda: torch.neuron.init(),
        "synchronize": lambda: torch.neuron.synchronize(),
        "accelerator": lambda: torch.accelerator.synchronize(),
        "set_device": lambda: torch.neuron.set_device(1),
        "stream": lambda: torch.neuron.Stream(),
        "event": lambda: torch.neuron.Event(),
        "module": lambda: torch.nn.Linear(2, 2).to("neuron"),
        "snapshot": lambda: torch.neuron.memory_snapshot(),
        "set_": lambda: torch.empty(0).to("neuron").set_(before.untyped_storage()),
        "resize_": lambda: before.detach().resize_(100),
        "storage": lambda: before.untyped_storage().cpu(),
    }
    for name, use in uses.items():
        try:
            use()
            answers[name] = "ran"
        except DeviceError as error:
            answers[name] = "refused" if "forked child" in str(error) and "spawn" in str(error) else str(error)
        except BaseException as error:
            answers[name] = repr(error)
    torch.manual_seed(3)  # seeds the CPU
    answers["cpu"] = torch.ones(3).add(1).sum().item()
    cpu_leaf = torch.ones(3, requires_grad=True)
    cpu_leaf.sum().backward()
    answers["cpu backward"] = cpu_leaf.grad.sum().item()
    grandchild = os.fork()
    if grandchild == 0:
        try:
            torch.ones(1, device="neuron")
        except DeviceError:
            os._exit(7)
        os._exit(0)
    answers["grandchild"] = os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1])
    os.write(write, json.dumps(answers).encode())
    os._exit(0)
os.close(write)
answers = json.loads(os.fdopen(read).read() or "{}")
_, status = os.wait()
answers["child's status"] = os.waitstatus_to_exitcode(status)
answers["parent"] = [torch.neuron._is_in_bad_fork(), (torch.ones(2, device="neuron") + 1).sum().item()]
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def child(fresh: Any) -> dict[str, Any]:
    """What a forked child of a process that had used the device could do."""
    answer: dict[str, Any] = fresh(
        "import warnings; warnings.simplefilter('ignore')\n" + CHILD_OF_A_USER, seconds=60
    ).answer
    return answer


FINE = {
    "bad fork": True,
    "initialized": False,
    "cpu": 6.0,
    "cpu backward": 3.0,
    "grandchild": 7,
    "child's status": 0,
    "parent": [False, 4.0],
}


OPEN = {"accelerator", "resize_"}


def test_every_use_in_a_forked_child_is_refused(child: dict[str, Any]) -> None:
    uses = {name: answer for name, answer in child.items() if name not in {*FINE, *OPEN, "count", "available"}}
    assert len(uses) == 24
    assert {name: answer for name, answer in uses.items() if answer != "refused"} == {}


def test_the_last_doors_are_shut(child: dict[str, Any]) -> None:
    assert {child[name] for name in OPEN} == {"refused"}


def test_the_child_knows_and_the_rest_works(child: dict[str, Any]) -> None:
    assert {name: child[name] for name in FINE} == FINE


def test_asking_for_devices_in_the_child_never_raises(child: dict[str, Any]) -> None:
    assert child["count"] == 4
    assert child["available"] is True


def test_fork_before_the_first_use_is_fine(fresh: Any) -> None:
    code = """
    import json, os, torch
    torch.neuron.is_available(), torch.neuron.device_count(), torch.manual_seed(1)  # none of them opens the device
    assert not torch.neuron.is_initialized()
    child = os.fork()
    value = torch.ones(3, device="neuron").sum().item()
    if child == 0:
        os._exit(int(value))
    print(json.dumps([value, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), torch.neuron._is_in_bad_fork()]))
    """
    assert fresh(code).answer == [3.0, 3, False]


@pytest.mark.parametrize(("opened", "expected"), [("True", {7}), ("False", {0, 7})])
def test_fork_while_another_thread_works(fresh: Any, opened: str, expected: set[int]) -> None:
    code = """
    import json, os, threading, torch, warnings
    from torch_neuronx.errors import DeviceError
    warnings.simplefilter("ignore")
    stop = threading.Event()
    def work():
        x = torch.ones(64, 64, device="neuron")
        while not stop.is_set():
            x = (x @ x).clamp(0, 1)
            torch.empty(1000, device="neuron")
    thread = threading.Thread(target=work)
    if OPENED:
        torch.neuron.init()
    thread.start()
    statuses = set()
    for _ in range(10):
        child = os.fork()  # perhaps in the middle of opening the device
        if child == 0:
            try:
                os._exit(int(torch.zeros(2, device="neuron").sum().item()))
            except DeviceError:
                os._exit(7)
        statuses.add(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    stop.set()
    thread.join()
    print(json.dumps(sorted(statuses)))
    """
    assert set(fresh(code.replace("OPENED", opened), seconds=60).answer) <= expected


def test_a_fork_waits_until_autograd_s_threads_rest(fresh: Any) -> None:
    code = """
    import json, os, torch
    from torch_neuronx import _compat

    torch.ones(3, requires_grad=True).sum().backward()
    running = [set("R"), set("RS"), set("S"), set("R"), set("S"), set("S")]  # one at rest may have been looked at early
    found = iter(running)
    _compat._autograd_thread_states = lambda: next(found)
    child = os.fork()
    if child == 0:
        os._exit(3)
    print(json.dumps([len(list(found)), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]))
    """
    assert fresh(code).answer == [0, 3]


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_children_of_their_own_use_the_device(method: str) -> None:
    use = "__import__('torch').full((3,), 2.0, device='neuron:1').square().sum().item()"
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.apply_async(eval, (use,)).get(timeout=120) == 12.0


def test_tensors_do_not_cross_processes() -> None:
    import pickle
    from multiprocessing.reduction import ForkingPickler

    import torch

    with pytest.raises(RuntimeError, match="only available on CPU"):
        ForkingPickler.dumps(torch.ones(2, device="neuron"))
    assert pickle.loads(pickle.dumps(torch.ones(2, device="neuron"))).is_neuron
