"""Kernels for AWS Trainium, and PyTorch operators made of them. Importing it imports torch and changes nothing."""

from torch_neuronx_nki.errors import NkiLaunchError, NkiSchemaError, NkiShapeError, NkiValidationError, NkiWarning
from torch_neuronx_nki.operators import nki_op
from torch_neuronx_nki.run import equivalent
from torch_neuronx_nki.wrap import wrap_nki

__all__ = [
    "NkiLaunchError",
    "NkiSchemaError",
    "NkiShapeError",
    "NkiValidationError",
    "NkiWarning",
    "equivalent",
    "nki_op",
    "wrap_nki",
]
