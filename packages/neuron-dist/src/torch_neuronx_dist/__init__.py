"""The ``torch.distributed`` backend ``neuron``: collectives on tensors of the device ``neuron``.

Importing this package imports no compiled code and changes nothing. The backend is registered when torch loads its
device backends; :func:`register` does the same by hand where that is switched off.
"""

from torch_neuronx_dist.backend import register

__all__ = ["register"]
