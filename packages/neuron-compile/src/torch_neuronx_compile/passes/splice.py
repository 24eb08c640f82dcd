"""Trace a function and put the calls that it makes into a graph."""

from collections.abc import Callable, Sequence

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from torch_neuronx_compile._compat import detect_fake_mode
from torch_neuronx_compile.decompositions.table import decompositions
from torch_neuronx_compile.decompositions.views import VIEWS
from torch_neuronx_compile.passes.emit import ORIGIN

Form = Callable[..., list[torch.Tensor]]


def splice(graph: fx.Graph, node: fx.Node, form: Form, arguments: Sequence[fx.Node]) -> list[fx.Node]:
    """Put what ``form`` makes of ``arguments`` in front of ``node``; return its results."""
    mode = detect_fake_mode([argument.meta["val"] for argument in arguments] or [node.meta["val"]])
    assert mode is not None
    with mode:
        trace = make_fx(form, decomposition_table={**decompositions(), **VIEWS})
        traced = trace(*(argument.meta["val"] for argument in arguments)).graph
    for made in traced.nodes:
        made.meta.pop("tensor_meta", None)  # the importer would believe it where a later pass has changed the dtype
        made.meta.update((name, node.meta[name]) for name in ORIGIN if name in node.meta)
    with graph.inserting_before(node):
        copied = dict(zip(traced.find_nodes(op="placeholder"), arguments, strict=True))
        return list(graph.graph_copy(traced, copied))  # type: ignore[arg-type]
