"""Kernels for AWS Trainium, and PyTorch operators made of them. Importing it imports torch and changes nothing."""

from torch_neuronx_nki.errors import NkiLaunchError, NkiSchemaError, NkiShapeError, NkiValidationError, NkiWarning
from torch_neuronx_nki.operators import nki_op

__all__ = ["NkiLaunchError", "NkiSchemaError", "NkiShapeError", "NkiValidationError", "NkiWarning", "nki_op"]
