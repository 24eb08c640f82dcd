"""Kernels for AWS Trainium as PyTorch operators. Importing this package imports torch and changes nothing."""

from torch_neuronx_nki.errors import NkiSchemaError, NkiShapeError
from torch_neuronx_nki.operators import nki_op

__all__ = ["NkiSchemaError", "NkiShapeError", "nki_op"]
