"""Private names of torch that the sweep uses. Written for torch 2.13; no public ones exist."""

from collections.abc import Callable
from typing import Any

from torch.testing._internal import common_methods_invocations
from torch.testing._internal.common_methods_invocations import op_db  # the suite itself
from torch.utils._pytree import tree_map  # nested arguments

__all__ = ["leave_seeds_to_caller", "op_db", "tree_map"]


def leave_seeds_to_caller() -> None:
    """Stop entries that draw numbers from setting a seed of their own, in this process and from here on.

    Otherwise no run with another seed could show that they draw.
    """

    def call(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return op(*args, **kwargs)

    setattr(common_methods_invocations, "wrapper_set_seed", call)  # noqa: B010  it is imported there, not defined
