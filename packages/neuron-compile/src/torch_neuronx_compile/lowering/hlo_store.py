"""Programs that another process lowered, by graph: the persistent store, found by hook."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from torch_neuronx.lowerings import Expansion, Lowering
from torch_neuronx_compile.lowering.graph_text import UnknownArgumentError, graph_text
from torch_neuronx_compile.stores import find_or_make
from torch_neuronx_compile.versions import versions

KIND = "hlo"


def find_or_lower(
    name: str, graph: fx.Graph, lowerings: Sequence[Lowering | Expansion], lower_now: Callable[[], bytes]
) -> tuple[bytes, bool]:
    """Return the program of a prepared graph called ``name``, and whether ``lower_now`` had to make it.

    The key has what decides the program: the graph, the plugins' ``lowerings`` that it uses, and versions.
    Decompositions are no part: the graph is what they have left. A graph that has no text is lowered every time.
    """
    try:
        text = graph_text(graph)
    except UnknownArgumentError:
        return lower_now(), True
    used = [_facts(lowering) for lowering in sorted(lowerings, key=lambda lowering: lowering.op)]
    parts = {"graph": text.encode(), "lowerings": used, **versions()}
    return find_or_make(KIND, parts, lower_now, {"graph": name})


def _facts(lowering: Lowering | Expansion) -> list[Any]:
    if isinstance(lowering, Expansion):
        return [lowering.op, lowering.build, lowering.fingerprint]
    return [lowering.op, lowering.custom_call, lowering.fingerprint, lowering.ordered, list(lowering.mutates)]
