"""Loads the compiled part of this package when the first process group is made."""

from functools import cache
from importlib import import_module
from types import ModuleType

from torch_neuronx.errors import BrokenInstallError

_REBUILD = "Reinstall it with: pip install --force-reinstall --no-deps torch-neuronx-dist"


@cache
def load() -> ModuleType:
    """Return the extension module, ready for use.

    Raises BrokenInstallError when it was not built, was built for another torch, or does not load; and what keeps
    the device itself from being used.
    """
    import torch

    from torch_neuronx_dist.carrier import make_carrier

    torch.get_device_module("neuron").current_device()  # where the core cannot be used, this raises why
    try:
        built_for = import_module("torch_neuronx_dist._build_info").TORCH_VERSION
    except ModuleNotFoundError as error:
        raise BrokenInstallError(f"torch-neuronx-dist is installed without its compiled part. {_REBUILD}") from error
    if torch.__version__ != built_for:
        raise BrokenInstallError(
            f"torch-neuronx-dist was compiled for torch {built_for}, but torch {torch.__version__} is running. "
            f"{_REBUILD}"
        )
    try:
        extension = import_module("torch_neuronx_dist._C")
    except ImportError as error:
        raise BrokenInstallError(
            f"The compiled part of torch-neuronx-dist does not load: {error}. {_REBUILD}"
        ) from error
    extension.set_carrier_factory(make_carrier)
    return extension
