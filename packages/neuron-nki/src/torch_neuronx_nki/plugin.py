"""What this package provides through the project's hooks."""

from typing import TYPE_CHECKING, Any

from torch_neuronx.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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
