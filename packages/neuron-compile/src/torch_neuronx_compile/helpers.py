"""The helper API of ``torch_neuronx.neuron_dynamo_backend``."""

from torch_neuronx.errors import NEFFCompilationError, NEFFExecutionError
from torch_neuronx_compile.metrics import NeuronCompilationMetrics, get_dynamo_metrics, reset_dynamo_metrics
from torch_neuronx_compile.naming import get_model_name, get_rank, set_model_name

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
