"""Every private name of torch that the core's Python touches, with the version it was written for and the reason."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.utils import backend_registration

# COMPAT(torch 2.13): the documented way to install a device module has a private name.


def register_device_module(name: str, module: ModuleType) -> None:
    """Make ``module`` be ``torch.<name>``; an equal registration counts."""
    if getattr(torch, name, None) is not module:
        torch._register_device_module(name, module)  # type: ignore[no-untyped-call]


# COMPAT(torch 2.13): the public function raises on its second call in a process, and says so only in its text.
# CAN REMOVE when torch makes it idempotent.


def generate_methods(name: str) -> None:
    """Give tensors, modules, storages and packed sequences their ``.neuron()`` and ``.is_neuron``."""
    if not hasattr(torch.Tensor, name):
        backend_registration.generate_methods_for_privateuse1_backend(for_storage=True)


# COMPAT(torch 2.13): a name without C++ hooks makes torch.accelerator throw in CPU programs (a DataLoader with
# pin_memory asks it). torch has stand-ins for backends written in Python; there is no public way to them.


def register_absent_backend() -> None:
    """Fill PyTorch's slots for the renamed backend with stand-ins that see no device."""

    class _AbsentHooks(backend_registration._DummyPrivateUse1Hook):
        def is_available(self) -> bool:
            return False

        def device_count(self) -> int:
            return 0

    class _AbsentGuard(backend_registration._DummyDeviceGuard):
        pass

    acc = torch._C._acc
    acc.register_python_privateuseone_hook(_AbsentHooks())
    acc.register_python_privateuseone_device_guard(_AbsentGuard())


# COMPAT(torch 2.13): the marks that torch.compiler.disable and assume_constant_result leave. These functions are public
# and import Dynamo, which takes a second that a program that compiles nothing does not have to pay.


def run_between_graphs(functions: Iterable[Callable[..., Any]]) -> None:
    """Have Dynamo break its graph at a call of one of ``functions`` and look neither into it nor into what it calls."""
    frames = torch._C._dynamo.eval_frame
    skip = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.SKIP)
    for function in functions:
        marked: Any = function
        marked._torchdynamo_disable = True
        marked._torchdynamo_disable_msg = "it asks for the state of the device or changes it"
        frames.set_code_exec_strategy(marked.__code__, skip)


def fold_into_graphs(functions: Iterable[Callable[..., Any]]) -> None:
    """Have Dynamo call ``functions`` while it traces and take what they return as constants."""
    for function in functions:
        marked: Any = function
        marked._dynamo_marked_constant = True


def register_process_group(name: str, create: Callable[..., Any]) -> None:
    """Make ``create`` the maker of process groups of backend ``name`` for device ``name``, unless it is taken."""
    import torch.distributed as dist

    if dist.is_available() and not hasattr(dist.Backend, name.upper()):
        # `devices` must be a list: torch 2.13 reads a string letter by letter.
        dist.Backend.register_backend(name, create, extended_api=True, devices=[name])


# COMPAT(torch 2.13): a thread of autograd drops the last reference to a finished backward pass, for which it takes the
# GIL. If the interpreter is being finalized by then, CPython ends the thread in the middle of C++ and the process
# aborts: a program whose last act is a backward pass, on any accelerator. A thread that starts makes itself known to
# CPython without the GIL: a child forked in the middle of that hangs. CAN REMOVE when torch joins its threads.


def wait_for_autograd_threads(seconds: float = 1.0) -> None:
    """Give autograd's threads the GIL until they rest, at most ``seconds``; before a fork and at the program's end."""
    deadline = time.monotonic() + seconds
    rested = 0
    while rested < 2 and time.monotonic() < deadline:
        states = _autograd_thread_states()
        if not states:
            return
        rested = rested + 1 if states == {"S"} else 0
        time.sleep(0.001)


def _autograd_thread_states() -> set[str]:
    """The states of autograd's device threads as Linux names them: ``S`` is waiting, ``R`` is running."""
    states = set()
    for thread in Path("/proc/self/task").glob("*/stat"):
        try:
            _, _, rest = thread.read_text().partition("(pt_autograd")
        except OSError:  # it ended meanwhile
            continue
        if rest:
            states.add(rest.rpartition(")")[2].split()[0])
    return states
