"""Stands for the vendor's package ``neuronxcc``, of which there is only ``neuronxcc.nki`` here."""

__path__: list[str] = []
"""Makes ``import neuronxcc.nki`` ask for the submodule."""
