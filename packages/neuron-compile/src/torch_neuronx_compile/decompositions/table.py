"""The whole table: torch-mlir's, then this package's, then plugins'."""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import torch
from torch._ops import OpOverload

from torch_neuronx import plugins
from torch_neuronx_compile.decompositions.strides import keeping_order

_FAMILIES = (
    "activations",
    "attention",
    "comparisons",
    "convolution",
    "cumulative",
    "distributions",
    "elementwise",
    "embedding",
    "factories",
    "foreach",
    "indexing",
    "linear",
    "linear_algebra",
    "losses",
    "normalization",
    "pooling",
    "resampling",
    "shapes",
    "sorting",
    "statistics",
    "truth_values",
)
"""Modules beside this one; they are imported when a graph is traced, which those that a cache has are not."""


@cache
def _own() -> dict[OpOverload, Callable[..., Any]]:
    from torch_neuronx_compile.decompositions._compat import decompositions_of_torch_mlir  # imports torch-mlir

    own: dict[OpOverload, Callable[..., Any]] = {}
    for family in _FAMILIES:
        found = import_module(f"{__package__}.{family}").DECOMPOSITIONS
        twice = own.keys() & found.keys()
        assert not twice, f"{family} decomposes {twice}, as another family does"
        own |= found
    table = {op: keeping_order(op, found) for op, found in {**decompositions_of_torch_mlir(), **own}.items()}
    # torch makes it of an empty tensor, which is made of full where memory is never left as it was found.
    table.pop(torch.ops.aten.full.default, None)
    return table


def decompositions() -> dict[OpOverload, Callable[..., Any]]:
    """Return the decompositions by operator."""
    return {**_own(), **plugins.manager().decompositions()}
