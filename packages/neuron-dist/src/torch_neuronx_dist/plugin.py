"""What this package provides through the project's hooks."""

from typing import TYPE_CHECKING, Any

from torch_neuronx.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch_neuronx.lowerings import Collective, Expansion


@hookimpl
def torch_neuronx_register_expansions() -> "list[Expansion]":
    """Add the functional collectives."""
    from torch_neuronx_dist.graphs.operators import expansions

    return expansions()


@hookimpl
def torch_neuronx_register_decompositions() -> "dict[Any, Callable[..., Any]]":
    """Add the functional collectives on lists of tensors."""
    from torch_neuronx_dist.graphs.operators import decompositions

    return decompositions()


@hookimpl
def torch_neuronx_register_collectives() -> "list[Collective]":
    """Add what the emulator runs for collectives."""
    from torch_neuronx_dist.graphs.handlers import collectives

    return collectives()


@hookimpl
def torch_neuronx_first_tensor() -> Exception | None:
    """Ask a rank for a process group before its first tensor."""
    import torch.distributed as dist

    if not dist.is_available():
        return None
    from torch_neuronx_dist.order import object_to_first_tensor

    return object_to_first_tensor()
