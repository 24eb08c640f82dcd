"""A failed graph: what is written down about it, and the error that says so."""

import torch
from torch import fx

from torch_neuronx import config
from torch_neuronx_compile.artifacts import write_artifact
from torch_neuronx_compile.errors import GraphCompilationError


def failed(
    name: str, graph: fx.Graph, stage: str, reason: str, *, node: fx.Node | None = None, diagnostics: str = ""
) -> GraphCompilationError:
    """Write the graph and the diagnostics to the debug directory and return the error to raise.

    ``reason`` completes the sentence "the operator …" where ``node`` is the one at fault, else it is a sentence.
    """
    folder = write_artifact(name, "graph.txt", f"{graph}\n".encode())
    op, where = (None, "") if node is None else (str(node.target), describe(node))
    write_artifact(name, "diagnostics.txt", f"{stage}\n{where}\n{reason}\n{diagnostics}\n".encode())
    what = _last_line(reason) if node is None else f"the operator {where} {_last_line(reason)}"
    return GraphCompilationError(
        f"The graph {name!r} was not compiled. In {stage}: {what}. Keep the operator out of the compiled region, or "
        f"set {config.DISABLE_FALLBACK_EXECUTION.name}=0 to run such graphs in eager mode. The graph and all "
        f"diagnostics are in {folder}.",
        op=op,
        reason=reason,
        artifact=str(folder),
    )


def describe(node: fx.Node) -> str:
    """Write a call with the types of its tensors and the line of the user's program that made it."""
    types = ", ".join(
        f"{str(value.dtype).removeprefix('torch.')}{[int(extent) for extent in value.shape]}"
        for value in (argument.meta.get("val") for argument in node.all_input_nodes)
        if isinstance(value, torch.Tensor)
    )
    frames = [line.strip() for line in node.meta.get("stack_trace", "").splitlines() if line.strip().startswith("File")]
    return f"{node.target}({types})" + (f" [{frames[-1]}]" if frames else "")


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].strip().rstrip(".") if lines else "failed without a word"
