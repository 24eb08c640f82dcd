"""Worker: whether one call of one operator lowers, forward and backward, by the backend's own path."""

import os
import tempfile
import warnings
from typing import Any

import torch
from torch import fx

from tools.op_statuses._compat import tree_flatten, tree_leaves
from tools.op_statuses.signatures import decode, find_overload
from torch_neuronx.errors import NEFFCompilationError
from torch_neuronx.testing.isolation import serve
from torch_neuronx_compile.capture.aot import trace
from torch_neuronx_compile.eager import EagerGraph
from torch_neuronx_compile.lowering.lower import lower_graph
from torch_neuronx_compile.passes.pipeline import prepare
from torch_neuronx_compile.unit import GraphKind
from torch_neuronx_compile.worker.client import Worker, WorkerError

NO_LOWERING = "it has no lowering"
FATAL = "its lowering ends the compiler"
DEVICE = torch.device("neuron", 0)
_worker = Worker(time_limit=30)


def lower(case: dict[str, Any]) -> dict[str, Any]:
    """Lower one recorded call, without its gradient where there is none to be had; see :func:`lower_with`."""
    answer = lower_with(case, gradient=True)
    return lower_with(case, gradient=False) if answer["forward"] == "untold" else answer


def lower_with(case: dict[str, Any], *, gradient: bool) -> dict[str, Any]:
    """Lower one recorded call: the reasons why not, forward and backward, "untold" for what was not reached."""
    overload = find_overload(case["op"])
    args = decode(case["args"], _tensor)
    kwargs = {name: decode(value, _tensor) for name, value in case["kwargs"].items()}
    reasons: dict[GraphKind, str | None] = {}
    detail = ""

    def compile_graph(graph: fx.GraphModule, kind: GraphKind) -> EagerGraph:
        nonlocal detail
        try:
            lower_graph(prepare(graph, kind, "call", DEVICE).graph, _worker)
            reasons[kind] = None
        except WorkerError as error:
            reasons[kind] = FATAL if error.fatal else NO_LOWERING
            detail = error.reason[-300:]
        except NEFFCompilationError as error:
            reasons[kind] = NO_LOWERING
            detail = str(error)[-300:]
        return EagerGraph(graph)

    leaves, _ = tree_flatten((args, kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if gradient:
        for tensor in tensors:
            tensor.requires_grad_(tensor.is_floating_point())
    try:
        results = trace(_module(overload, args, kwargs), tensors, compile_graph)(*tensors)
        wanted = [t for t in tree_leaves(results) if isinstance(t, torch.Tensor) and t.requires_grad]
        if gradient and wanted:
            leaves = [tensor for tensor in tensors if tensor.requires_grad]
            torch.autograd.grad(wanted, leaves, [torch.ones_like(result) for result in wanted], allow_unused=True)
    except Exception as error:  # the call is not to be had on the device: that says nothing of its lowering
        detail = f"{type(error).__name__}: {error}"[:300]
    forward = reasons.get(GraphKind.FORWARD, reasons.get(GraphKind.INFERENCE, "untold"))
    return {"forward": forward, "backward": reasons.get(GraphKind.BACKWARD, "untold"), "detail": detail}


def _tensor(shape: torch.Size, stride: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    if dtype.is_floating_point:
        return torch.empty_strided(shape, stride, dtype=dtype).fill_(0.5).to(DEVICE)
    return torch.empty_strided(shape, stride, dtype=dtype).zero_().to(DEVICE)


def _module(overload: Any, args: Any, kwargs: Any) -> fx.GraphModule:
    graph = fx.Graph()

    def lift(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return graph.placeholder(f"input_{len(graph.nodes)}")
        return [lift(item) for item in value] if isinstance(value, (list, tuple)) else value

    def moved(value: Any) -> Any:
        return DEVICE if isinstance(value, torch.device) else value

    lifted = [lift(moved(value)) for value in args]
    named = {name: lift(moved(value)) for name, value in kwargs.items()}
    call = graph.call_function(overload, tuple(lifted), named)
    returns = overload._schema.returns
    if len(returns) == 1 and str(returns[0].type) != "Tensor":
        graph.output(graph.call_function(tuple, (call,)))
    elif len(returns) == 1:
        graph.output((call,))
    else:
        graph.output(tuple(graph.call_function(_item, (call, i)) for i in range(len(returns))))
    return fx.GraphModule(torch.nn.Module(), graph)


def _item(results: Any, index: int) -> Any:
    return results[index]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCH_NEURONX_DEBUG_DIR"] = folder
        serve(lower)
