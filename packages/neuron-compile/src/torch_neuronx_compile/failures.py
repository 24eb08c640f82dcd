"""A failed graph: what is written down about it, and the error that says so."""

import torch
from torch import fx

from torch_neuronx import config
from torch_neuronx_compile.artifacts import keep_failure
from torch_neuronx_compile.errors import GraphCompilationError

_UNSUPPORTED = ("has no lowering", "does not lower: cannot be imported", "has a result whose shape depends on")
"""How reasons begin that say something of the operator, not of the worker."""


def failed(
    name: str, graph: fx.Graph, stage: str, reason: str, *, node: fx.Node | None = None, diagnostics: str = ""
) -> GraphCompilationError:
    """Write the graph and the diagnostics to the debug directory and return the error to raise.

    ``reason`` completes the sentence "the operator …" where ``node`` is the one at fault, else it is a sentence.
    """
    op, where = (None, "") if node is None else (str(node.target), describe(node))
    report = f"{stage}\n{where}\n{reason}\n{diagnostics}\n"
    folder = keep_failure(name, {"graph.txt": f"{graph}\n", "diagnostics.txt": report})
    kept = f"The graph and all diagnostics are in {folder}."
    if folder is None:
        kept = f"Nothing could be written to {config.get(config.DEBUG_DIR)}; the diagnostics:\n{report}"
    what = _last_line(reason) if node is None else f"the operator {where} {_last_line(reason)}"
    return GraphCompilationError(
        f"The graph {name!r} was not compiled. In {stage}: {what}. Keep the operator out of the compiled region, or "
        f"set {config.DISABLE_FALLBACK_EXECUTION.name}=0 to run such graphs in eager mode. {kept}",
        op=op,
        reason=reason,
        artifact=None if folder is None else str(folder),
        node=node,
        unsupported=node is not None and reason.startswith(_UNSUPPORTED),
    )


def describe(node: fx.Node) -> str:
    """Write a call with the types of its tensors and the line of the user's program that made it."""
    types = ", ".join(
        f"{str(value.dtype).removeprefix('torch.')}{[int(extent) for extent in value.shape]}"
        for value in (argument.meta.get("val") for argument in node.all_input_nodes)
        if isinstance(value, torch.Tensor)
    )
    line = user_line(node)
    return f"{node.target}({types})" + (f" [{line}]" if line else "")


def user_line(node: fx.Node) -> str:
    """Return the line of the user's program that made a call, as tracebacks write it; empty if that is not known."""
    lines = (line.strip() for line in node.meta.get("stack_trace", "").splitlines())
    return next(reversed([line for line in lines if line.startswith("File")]), "")


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].strip().rstrip(".") if lines else "failed without a word"
