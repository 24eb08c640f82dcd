"""Names of torch that are not public. Checked with torch 2.13."""

# torch.library.custom_op returns it, and torch.library has it, but does not export it to type checkers.
from torch._library.custom_ops import CustomOpDef

__all__ = ["CustomOpDef"]
