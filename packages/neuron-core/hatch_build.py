"""Loads the build hook from this package's own sources: `torch_neuronx` is not installed while it is being built."""

import importlib.util
import sys
from pathlib import Path
from typing import Any


def get_build_hook() -> Any:
    """Class of the hook `neuron-extension`."""
    folder = Path(__file__).parent / "src" / "torch_neuronx" / "build"
    name = "_torch_neuronx_build"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            name, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return importlib.import_module(f"{name}.hooks").NeuronExtensionHook
