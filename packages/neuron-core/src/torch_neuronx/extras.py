"""The optional packages, and the doors to them: load one, or say how to install it."""

import importlib
from types import ModuleType

from torch_neuronx.errors import MissingExtraError


def load(extra: str, module: str, feature: str) -> ModuleType:
    """Import ``module``, which the extra ``extra`` installs.

    Raises :class:`MissingExtraError` with the install line if the extra is absent; an error inside an installed one is
    that error.
    """
    package = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise MissingExtraError.for_extra(extra, feature) from None
