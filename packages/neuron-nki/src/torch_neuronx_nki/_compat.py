"""Names of torch that are not public. Checked with torch 2.13."""

# torch.library.custom_op returns it, and torch.library has it, but does not export it to type checkers.
from torch._library.custom_ops import CustomOpDef

# A tensor without data may be on any device. torch has no public question for it.
from torch._subclasses.fake_tensor import is_fake

__all__ = ["CustomOpDef", "is_fake"]
