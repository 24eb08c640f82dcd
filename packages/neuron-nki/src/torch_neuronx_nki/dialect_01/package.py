"""Stands for the vendor's package ``neuronxcc``, of which there is only ``neuronxcc.nki`` here."""

from torch_neuronx_nki.dialect_01 import api as nki

__path__: list[str] = []
"""Makes ``import neuronxcc.nki`` ask for the submodule."""

__all__ = ["nki"]
