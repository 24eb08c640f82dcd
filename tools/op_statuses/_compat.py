"""Private names of torch and torchgen that the tool uses. Written for torch 2.13; public ones do not exist."""

from torch._C import _dispatch_get_all_op_names as all_operator_names  # the only list of what the dispatcher knows
from torch._C import _dispatch_has_kernel_for_dispatch_key as has_kernel  # where an operator ends
from torch._decomp import decomposition_table  # PyTorch's decompositions, by overload
from torch._ops import OpOverload  # the type of `torch.ops.aten.add.Tensor`
from torch.testing._internal.common_methods_invocations import op_db  # sample inputs of every operator
from torch.utils._python_dispatch import TorchDispatchMode  # sees calls below autograd
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten  # nested arguments and results

__all__ = [
    "OpOverload",
    "TorchDispatchMode",
    "all_operator_names",
    "decomposition_table",
    "has_kernel",
    "op_db",
    "tree_flatten",
    "tree_leaves",
    "tree_unflatten",
]
