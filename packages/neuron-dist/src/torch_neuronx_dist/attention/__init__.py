"""Attention over sequences that are cut over ranks."""

from torch_neuronx_dist.attention.ring import context_parallel

__all__ = ["context_parallel"]
