"""Offers the module ``nki`` where the vendor's package is absent.

The finder stands last on ``sys.meta_path``, so that whatever else provides ``nki`` wins. The module that is imported as
``nki.isa`` is ``torch_neuronx_nki.isa`` itself. Every Python process of the environment installs the finder when it
starts (``torch_neuronx_nki.pth``); therefore this file imports next to nothing.
"""

import importlib
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

MODULES = {
    "nki": "torch_neuronx_nki.api",
    "nki.language": "torch_neuronx_nki.language",
    "nki.isa": "torch_neuronx_nki.isa",
    "nki.isa.constants": "torch_neuronx_nki.isa.constants",
    "nki.collectives": "torch_neuronx_nki.collectives",
    "nki.typing": "torch_neuronx_nki.typing",
    "nki.simulator": "torch_neuronx_nki.jit",
}
"""Names that are offered, and the modules that answer."""

LEGACY_MODULES = {
    "neuronxcc": "torch_neuronx_nki.dialect_01.package",
    "neuronxcc.nki": "torch_neuronx_nki.dialect_01.api",
    "neuronxcc.nki.language": "torch_neuronx_nki.dialect_01.language",
    "neuronxcc.nki.isa": "torch_neuronx_nki.dialect_01.isa",
    "neuronxcc.nki.compiler": "torch_neuronx_nki.dialect_01.compiler",
    "neuronxcc.nki.typing": "torch_neuronx_nki.typing",
}
"""The same for the first dialect."""

_OFFERED = {**MODULES, **LEGACY_MODULES}


class _Alias:
    """Gives an existing module a second name."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Import the module that answers."""
        module = importlib.import_module(_OFFERED[spec.name])
        self.spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its own spec back: the import system has put the alias's there."""
        module.__spec__ = self.spec


class Finder:
    """Finds the names of :data:`MODULES` and :data:`LEGACY_MODULES`."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Return the spec of an offered name, unless its top package is someone else's."""
        if fullname not in _OFFERED:
            return None
        top = fullname.partition(".")[0]
        if fullname != top and getattr(sys.modules.get(top), "__name__", None) != _OFFERED[top]:
            return None
        return ModuleSpec(fullname, _Alias(), is_package=True)  # type: ignore[arg-type]


def install() -> None:
    """Put the finder at the end of ``sys.meta_path``, once."""
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.append(Finder())  # type: ignore[arg-type]
