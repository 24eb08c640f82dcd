"""What this package gives to torch-neuronx."""

from torch_neuronx.hookspecs import hookimpl
from torch_neuronx.kernels import KernelOffer


@hookimpl
def torch_neuronx_register_kernels() -> list[KernelOffer]:
    """Offer the kernel in place of ``torch.nn.functional.logsigmoid``."""
    from example_kernels.kernels import log_sigmoid, serves

    return [KernelOffer("example-log-sigmoid", "aten::log_sigmoid", kernel=log_sigmoid, predicate=serves)]
