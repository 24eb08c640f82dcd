"""Names of torch that are not public, all for type checkers only. Checked with torch 2.13."""

# torch.distributed has both at run time, but does not export the first, and imports the second where it has Gloo.
from torch._C._distributed_c10d import Backend, ProcessGroupGloo, Store

__all__ = ["Backend", "ProcessGroupGloo", "Store"]
