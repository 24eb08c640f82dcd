"""What ``import nki`` gives: ``nki.jit``, ``nki.simulate`` and the modules of the language."""

from torch_neuronx_nki import collectives, isa, language, typing
from torch_neuronx_nki.dtypes import Dtype as dtype
from torch_neuronx_nki.errors import NkiValidationError
from torch_neuronx_nki.jit import CompileConfig, Kernel, SpecializationConfig, jit, simulate

__path__: list[str] = []
"""Makes ``import nki.language`` ask for the submodule."""

__all__ = [
    "CompileConfig",
    "Kernel",
    "NkiValidationError",
    "SpecializationConfig",
    "collectives",
    "dtype",
    "isa",
    "jit",
    "language",
    "simulate",
    "typing",
]
