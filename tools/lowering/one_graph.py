"""Takes a function through the backend: without Dynamo one graph forward and one backward, or an error; or with it."""

from collections.abc import Callable
from typing import Any

import torch

from tools.lowering._compat import tree_flatten, tree_unflatten
from torch_neuronx_compile.backend import compile_graph
from torch_neuronx_compile.capture.aot import device_of, trace
from torch_neuronx_compile.naming import GraphNames
from torch_neuronx_compile.options import CompileOptions

_TENSOR = object()
_OPTIONS = CompileOptions(model_name="sample", fallback_execution=False)


class _Body(torch.nn.Module):
    """The function with tensors as its only arguments and results, which is what AOT Autograd takes."""

    def __init__(self, function: Callable[..., Any], leaves: list[Any], spec: Any) -> None:
        super().__init__()
        self._function = function
        self._leaves = leaves
        self._spec = spec
        self.results: list[Any] = []
        self.result_spec: Any = None

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Call the function and keep the results that are no tensors."""
        given = iter(tensors)
        leaves = [next(given) if isinstance(leaf, torch.Tensor) else leaf for leaf in self._leaves]
        args, kwargs = tree_unflatten(leaves, self._spec)
        results, self.result_spec = tree_flatten(self._function(*args, **kwargs))
        self.results = [_TENSOR if isinstance(leaf, torch.Tensor) else leaf for leaf in results]
        return tuple(leaf for leaf in results if isinstance(leaf, torch.Tensor))


def in_one_graph(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``function`` as it is for the CPU, and compiled where an argument is on the device or names it.

    The compiled call raises what tracing and the backend raise.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        leaves, spec = tree_flatten((args, kwargs))
        if not any(_on_device(leaf) for leaf in leaves):
            return function(*args, **kwargs)
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        body = _Body(function, leaves, spec)
        device = device_of(tensors)
        names = GraphNames("sample")
        compiled = trace(body, tensors, lambda graph, kind: compile_graph(graph, kind, names, device, _OPTIONS))  # type: ignore[arg-type]
        computed = iter(compiled(*tensors))
        return tree_unflatten([next(computed) if leaf is _TENSOR else leaf for leaf in body.results], body.result_spec)

    return call


def through_dynamo(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``function`` as it is for the CPU, and compiled by ``torch.compile`` where an argument is on the device.

    Graphs may break; nothing is kept from call to call.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        leaves, _ = tree_flatten((args, kwargs))
        if not any(_on_device(leaf) for leaf in leaves):
            return function(*args, **kwargs)
        torch.compiler.reset()
        return torch.compile(function, backend="neuron")(*args, **kwargs)

    return call


def _on_device(leaf: Any) -> bool:
    if isinstance(leaf, torch.Tensor):
        return leaf.device.type == "neuron"
    return isinstance(leaf, torch.device | str) and str(leaf).startswith("neuron")
