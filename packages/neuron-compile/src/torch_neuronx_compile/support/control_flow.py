"""Operators that take functions: which of them a NEFF cannot hold, and why."""

import torch
from torch import fx

_CHOICE = (
    "which of its functions runs, or how often, depends on values on the device, and a NEFF is one straight program"
)
_BODY = "its function would be a program of its own, and a NEFF cannot call another one"

REASONS = {
    "cond": _CHOICE,
    "while_loop": _CHOICE,
    "while_loop_stack_output": _CHOICE,
    "map_impl": _BODY,
    "scan": _BODY,
    "associative_scan": _BODY,
    "flex_attention": _BODY,
    "flex_attention_backward": _BODY,
}
"""By the operator's name, why it cannot be compiled. Others either disappear before a graph is lowered or lower."""


def first_call_with_a_body(module: fx.GraphModule, graph: fx.Graph) -> fx.Node | None:
    """Return the first call of ``graph`` that is given a graph of ``module``, which nothing lowers."""
    for node in graph.find_nodes(op="get_attr"):
        owner, _, leaf = str(node.target).rpartition(".")
        if isinstance(getattr(module.get_submodule(owner), leaf), torch.nn.Module):
            return next(iter(node.users), None)
    return None


def why_no_body(op: object) -> str:
    """Return why ``op``, which takes functions, does not lower; completes a sentence about it."""
    return REASONS.get(getattr(op, "__name__", ""), _BODY)
