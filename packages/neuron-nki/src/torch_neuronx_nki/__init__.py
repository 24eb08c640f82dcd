"""Kernels for AWS Trainium, and PyTorch operators made of them.

Names load on first use: the command line finds this package's plugin without importing torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch_neuronx_nki.errors import (
        NkiLaunchError,
        NkiSchemaError,
        NkiShapeError,
        NkiTypeError,
        NkiValidationError,
        NkiWarning,
    )
    from torch_neuronx_nki.operators import nki_op
    from torch_neuronx_nki.run import equivalent
    from torch_neuronx_nki.wrap import wrap_nki

__all__ = [
    "NkiLaunchError",
    "NkiSchemaError",
    "NkiShapeError",
    "NkiTypeError",
    "NkiValidationError",
    "NkiWarning",
    "equivalent",
    "nki_op",
    "wrap_nki",
]

_MODULES = {"equivalent": "run", "nki_op": "operators", "wrap_nki": "wrap"}


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module(f"torch_neuronx_nki.{_MODULES.get(name, 'errors')}"), name)
    raise AttributeError(f"module 'torch_neuronx_nki' has no attribute {name!r}")
