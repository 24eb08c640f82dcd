"""What ``import torch`` calls."""

import logging

_log = logging.getLogger("torch_neuronx_dist")
_called = False


def autoload() -> None:
    """Register the backend, once per process. Never raises: torch could not be imported otherwise."""
    global _called
    if _called:
        return
    _called = True
    try:
        from torch_neuronx_dist.backend import register

        register()
    except Exception:
        _log.warning("The torch.distributed backend 'neuron' could not be registered.", exc_info=True)
