"""Every private name of torch that the core's Python touches, with the version it was written for and the reason."""

from collections.abc import Callable
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


def register_process_group(name: str, create: Callable[..., Any]) -> None:
    """Make ``create`` the maker of process groups of backend ``name`` for device ``name``, unless it is taken."""
    import torch.distributed as dist

    if dist.is_available() and not hasattr(dist.Backend, name.upper()):
        # `devices` must be a list: torch 2.13 reads a string letter by letter.
        dist.Backend.register_backend(name, create, extended_api=True, devices=[name])
