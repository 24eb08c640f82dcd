"""Compiles C++ against the installed torch: the build hook `neuron-extension`, and `python -m torch_neuronx.build`.

Nothing in this package imports torch, or anything else of `torch_neuronx`: it also runs while `torch_neuronx` itself is
being built and is not installed yet. What must be known about torch is asked of a child process.
"""

from .errors import BuildError
from .project import Project, load_project
from .steps import Built, build, install_in_place

__all__ = ["BuildError", "Built", "Project", "build", "install_in_place", "load_project"]
