"""The helper API of ``torch_neuronx.neuron_dynamo_backend``."""

from torch_neuronx.errors import NEFFCompilationError, NEFFExecutionError
from torch_neuronx_compile.metrics import NeuronCompilationMetrics, get_dynamo_metrics, reset_dynamo_metrics
from torch_neuronx_compile.naming import get_model_name, set_model_name

__all__ = [
    "NEFFCompilationError",
    "NEFFExecutionError",
    "NeuronCompilationMetrics",
    "get_dynamo_metrics",
    "get_model_name",
    "get_rank",
    "reset_dynamo_metrics",
    "set_model_name",
]


def get_rank() -> int:
    """Return the rank in the default process group, or the current neuron device's index without one."""
    import torch
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return dist.get_rank()
    return torch.accelerator.current_device_index()
