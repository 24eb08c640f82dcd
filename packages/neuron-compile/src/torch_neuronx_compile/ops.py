"""The operators of this package's own, as FX sees them, registered together: a graph may hold any of them."""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

NAMESPACE = "neuron_compile"

Operator = tuple[str, Callable[..., Any], Callable[..., Any]]
"""A schema, the kernel, which serves every device, and what gives shapes and dtypes for fake tensors."""


@cache
def define() -> torch.library.Library:
    """Register all of them; the first call does it, whose result keeps them alive."""
    from torch_neuronx_compile import attention_ops, documented_ops, normalization_ops, random_ops, structured_ops

    library = torch.library.Library(NAMESPACE, "DEF")  # type: ignore[no-untyped-call]
    for family in (attention_ops, documented_ops, normalization_ops, random_ops, structured_ops):
        for schema, kernel, fake in family.OPERATORS:
            name = schema.partition("(")[0]
            library.define(schema)  # type: ignore[no-untyped-call]
            library.impl(name, kernel, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
            torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=library)
    return library
