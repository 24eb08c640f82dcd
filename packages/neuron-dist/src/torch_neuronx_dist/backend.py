"""Registers the backend with torch.distributed, and makes its process groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from datetime import timedelta

    from torch_neuronx_dist._C import ProcessGroupNeuron
    from torch_neuronx_dist._compat import Store

NAME = "neuron"
"""Name of the backend and of the device whose tensors it moves."""


class GroupRequest(Protocol):
    """What torch.distributed says of a new group to a backend that asks for the extended description."""

    store: Store
    group_rank: int
    group_size: int
    timeout: timedelta
    group_id: str
    global_ranks_in_group: list[int]


class _Attempt:
    name = ""
    """Prefix of what this process's groups keep in the job's store."""


def register() -> None:
    """Offer the backend and its rendezvous to torch.distributed. Calling it again changes nothing."""
    import torch.distributed as dist

    if dist.is_available():
        from torch_neuronx_dist import rendezvous

        rendezvous.register()
        dist.Backend.register_backend(NAME, create_process_group, extended_api=True, devices=[NAME])


def create_process_group(request: GroupRequest, options: object | None) -> ProcessGroupNeuron:
    """Make the part of a new group that serves device ``neuron``.

    ``options`` are ``ProcessGroupNeuron.Options`` or ``None``; where both speak, ``request`` wins. Raises
    BrokenInstallError when the compiled part of the package cannot be loaded, TypeError on another backend's options,
    GroupOrderError if a tensor came first, VersionMismatchError if another rank runs other versions.
    """
    import torch.distributed as dist

    from torch_neuronx_dist import session
    from torch_neuronx_dist._compat import PrefixStore
    from torch_neuronx_dist.extension import load
    from torch_neuronx_dist.order import check_group_comes_first
    from torch_neuronx_dist.versions import check_same_versions

    check_group_comes_first()
    extension = load()
    if options is None:
        options = extension.ProcessGroupNeuron.Options()
    if not isinstance(options, extension.ProcessGroupNeuron.Options):
        raise TypeError(
            f"pg_options for backend 'neuron' are of type {type(options).__name__}. "
            "Pass ProcessGroupNeuron.Options, or nothing."
        )
    first = not dist.is_initialized()  # the job's first group, which has every rank
    name = _Attempt.name
    if session.launcher_keeps_store() and (first or not name):
        name = session.agree(request.store, request.group_rank, request.group_size)
    if first:
        _Attempt.name = name
        store = PrefixStore(name, request.store) if name else request.store
        check_same_versions(store, request.group_rank, request.group_size)
    options.session = name
    options._timeout = request.timeout
    options.group_name = request.group_id
    options.global_ranks_in_group = request.global_ranks_in_group
    group: ProcessGroupNeuron = extension.ProcessGroupNeuron(
        request.store, request.group_rank, request.group_size, options
    )
    return group
