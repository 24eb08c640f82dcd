"""What ``torch.compile`` takes when it is given no backend: this one for graphs on the device, Inductor for others.

PyTorch has one default for the whole process and reads it when a function is decorated. It is changed when the device
is first used, and only while it is Inductor. Functions that were decorated before keep Inductor, which cannot compile
for the device: from then on what they give to Inductor is looked at as well, and graphs on the device come here.
Importing Dynamo takes seconds, so a program that never compiles does not pay for it: where Dynamo is not there yet, the
default is set when it comes.
"""

import importlib.machinery
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from torch_neuronx_compile.capture._compat import REGISTRY, InductorWrapper, redirect_inductor

if TYPE_CHECKING:
    from torch import fx


class DefaultBackend:
    """Hands each graph to ``neuron`` or to ``inductor``, with the mode and the options that ``torch.compile`` got."""

    __name__ = "neuron_or_inductor"

    def __repr__(self) -> str:
        return "<'neuron' for graphs on device neuron, 'inductor' for others>"

    def __call__(
        self,
        module: "fx.GraphModule",
        inputs: Sequence[Any],
        *,
        mode: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Callable[..., Any]:
        """Compile ``module``; raises what the backend in charge raises."""
        if not _on_device(module, inputs):
            from torch_neuronx_compile._compat import compile_with_inductor

            return compile_with_inductor(module, inputs, mode, options)
        return _compile(self, module, inputs, mode, options)


DEFAULT = DefaultBackend()


def _compile(
    backend: Any,
    module: "fx.GraphModule",
    inputs: Sequence[Any],
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    from torch_neuronx_compile.backend import neuron
    from torch_neuronx_compile.capture.breaks import begin

    begin(backend, _touches_device)
    return neuron(module, inputs, mode=mode, options=options)


def _compile_for_inductor(
    config: Mapping[str, Any], module: "fx.GraphModule", inputs: Sequence[Any]
) -> Callable[..., Any]:
    """Compile a graph of a function that was decorated for Inductor, whose ``config`` means nothing here."""
    if config:
        from torch_neuronx_compile.options import warn_once

        warn_once(
            f"Inductor's options ({', '.join(sorted(config))}) have no effect on graphs of device neuron. Pass "
            "backend='neuron' and its own options to torch.compile for functions that run there."
        )
    return _compile(InductorWrapper, module, inputs)


def become_default() -> None:
    """Put :data:`DEFAULT` in Inductor's place, now or when Dynamo is imported; watch functions decorated before."""
    redirect_inductor(_on_device, _compile_for_inductor)
    registry = sys.modules.get(REGISTRY)
    if registry is not None and hasattr(registry, "set_default_backend"):
        _set(registry)
    elif not any(isinstance(finder, _Watch) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Watch())


def _set(registry: ModuleType) -> None:
    if registry.get_default_backend() == "inductor":
        registry.set_default_backend(DEFAULT)


class _Watch(MetaPathFinder):
    """Calls :func:`_set` once the registry has been imported, and is gone then."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != REGISTRY:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loading(spec, spec.loader)
        return spec


class _Loading(Loader):
    """Stands in for a module's loader during its import."""

    def __init__(self, spec: ModuleSpec, loader: Loader) -> None:
        self._spec = spec
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._spec.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        _set(module)


def _on_device(module: "fx.GraphModule", inputs: Sequence[Any]) -> bool:
    from torch_neuronx_compile._compat import is_packet_of
    from torch_neuronx_compile.support.streams import NAMESPACE

    values = [node.meta.get("example_value") for node in module.graph.nodes]
    if _touches_device((inputs, values), {}):
        return True
    synchronized = (node.args for node in module.graph.nodes if is_packet_of(NAMESPACE, node.target))
    return any("neuron" in args for args in synchronized)


def _touches_device(args: Any, kwargs: Mapping[str, Any]) -> bool:
    """Return whether a tensor, a stream, an event or a device among arguments is on ``neuron``."""
    import torch
    from torch.utils._pytree import tree_leaves

    for leaf in tree_leaves((args, dict(kwargs))):
        device = leaf.device if isinstance(leaf, (torch.Tensor, torch.Stream, torch.Event)) else leaf
        if isinstance(device, torch.device) and device.type == "neuron":
            return True
    return False
