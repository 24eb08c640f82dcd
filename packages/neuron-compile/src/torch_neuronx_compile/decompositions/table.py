"""The whole table: torch-mlir's, then this package's, then plugins'."""

from collections.abc import Callable
from functools import cache
from typing import Any

from torch._ops import OpOverload

from torch_neuronx import plugins
from torch_neuronx_compile.decompositions import linear, normalization


@cache
def _own() -> dict[OpOverload, Callable[..., Any]]:
    from torch_mlir.extras.fx_decomp_util import get_decomposition_table  # takes a second

    return {**get_decomposition_table(), **linear.DECOMPOSITIONS, **normalization.DECOMPOSITIONS}


def decompositions() -> dict[OpOverload, Callable[..., Any]]:
    """Return the decompositions by operator."""
    return {**_own(), **plugins.manager().decompositions()}
