"""What compiled functions raise."""

from torch_neuronx.errors import NEFFCompilationError, NEFFExecutionError

__all__ = ["NEFFCompilationError", "NEFFExecutionError"]
