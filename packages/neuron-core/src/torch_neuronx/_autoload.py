"""What ``import torch`` calls to find the device.

It tells PyTorch the name, the device module and the kernels, and nothing else: no runtime is opened, no variable is
read. It never raises, because an entry point that raises takes ``import torch`` down for the whole environment; what
went wrong is kept, and raised when the device is first used.
"""


def autoload() -> None:
    """Register device ``neuron`` once; further calls do nothing. Never raises."""
    from torch_neuronx import _registration

    _registration.register()
