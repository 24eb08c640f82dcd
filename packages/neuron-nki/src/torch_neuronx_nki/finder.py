"""Offers the module ``nki`` where the vendor's package is absent.

The finder stands last on ``sys.meta_path``: whatever else provides ``nki`` wins. It maps names to modules of this
package; the module that is imported as ``nki.isa`` is ``torch_neuronx_nki.isa`` itself.
"""

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

MODULES = {
    "nki": "torch_neuronx_nki.api",
    "nki.language": "torch_neuronx_nki.language",
    "nki.isa": "torch_neuronx_nki.isa",
    "nki.isa.constants": "torch_neuronx_nki.engines",
    "nki.collectives": "torch_neuronx_nki.collectives",
    "nki.typing": "torch_neuronx_nki.typing",
    "nki.simulator": "torch_neuronx_nki.jit",
}
"""Names that are offered, and the modules that answer."""


class _Alias(Loader):
    """Gives an existing module a second name."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(MODULES[spec.name])
        self.spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.spec  # the import system has put the alias's there


class _Finder(MetaPathFinder):
    """Finds the names of :data:`MODULES`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in MODULES or (fullname != "nki" and not _is_ours()):
            return None
        return ModuleSpec(fullname, _Alias(), is_package=fullname == "nki")


def _is_ours() -> bool:
    parent = sys.modules.get("nki")
    return parent is not None and parent.__name__ == MODULES["nki"]


def install() -> None:
    """Put the finder at the end of ``sys.meta_path``, once."""
    if not any(type(finder).__qualname__ == _Finder.__qualname__ for finder in sys.meta_path):
        sys.meta_path.append(_Finder())


def uninstall() -> None:
    """Take the finder away; modules that were imported stay."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Finder)]
