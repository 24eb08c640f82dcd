"""Private names of torch that the sweep uses. Written for torch 2.13; no public ones exist."""

from torch.testing._internal.common_methods_invocations import op_db  # the suite itself
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten  # nested arguments

__all__ = ["op_db", "tree_flatten", "tree_map", "tree_unflatten"]
