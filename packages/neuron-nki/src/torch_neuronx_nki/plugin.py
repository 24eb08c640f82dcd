"""What this package provides through the project's hooks."""

from typing import TYPE_CHECKING, Any

from torch_neuronx.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch_neuronx.kernels import KernelOffer
    from torch_neuronx.lowerings import Lowering


@hookimpl
def torch_neuronx_register_lowerings() -> "list[Lowering]":
    """Add the operators that stand for launches of kernels."""
    from torch_neuronx_nki.lowering import lowerings

    return lowerings()


@hookimpl
def torch_neuronx_register_decompositions() -> "Mapping[Any, Callable[..., Any]]":
    """Add the operators of ``nki_op``: in compiled graphs they become what their functions do."""
    from torch_neuronx_nki.operators import decompositions

    return decompositions()


@hookimpl
def torch_neuronx_register_kernels() -> "list[KernelOffer]":
    """Offer attention and RMS normalization."""
    from torch_neuronx_nki.offers import ours

    return ours()


@hookimpl
def torch_neuronx_device_opened() -> None:
    """Have operators with offers ask for them."""
    from torch_neuronx_nki.offers import install

    install()
