"""What the examples share: the process group, the model, and how two runs are compared."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

SEED = 0
STEPS = 10
GLOBAL_BATCH = 512
FEATURES, HIDDEN = 128, 256
LEARNING_RATE = 0.01
DEVICES = {"cpu": ("cpu",), "neuron": ("neuron",), "both": ("cpu", "neuron")}


@contextmanager
def process_group() -> Iterator[None]:
    """Join the ranks that the launcher started; CPU tensors travel with Gloo, device tensors with `neuron`.

    With `neuron://` the ranks that `torchrun --max-restarts` starts again do not meet what the first ones left.
    """
    dist.init_process_group("cpu:gloo,neuron:neuron", init_method="neuron://")
    try:
        yield
    finally:
        dist.destroy_process_group()


def make_model() -> nn.Sequential:
    """The same model on every rank."""
    torch.manual_seed(SEED)
    return nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, FEATURES))


def batch_of(step: int, part: int, parts: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Part `part` of the global batch of a step: inputs and targets on the CPU."""
    generator = torch.Generator().manual_seed(SEED + 1 + step)
    inputs = torch.randn(GLOBAL_BATCH, FEATURES, generator=generator)
    targets = torch.randn(GLOBAL_BATCH, FEATURES, generator=generator)
    return inputs.chunk(parts)[part], targets.chunk(parts)[part]


@dataclass
class Record:
    """What one rank saw in one run, on the CPU: one entry per step."""

    outputs: list[torch.Tensor] = field(default_factory=list)
    gradients: list[list[torch.Tensor]] = field(default_factory=list)
    parameters: list[list[torch.Tensor]] = field(default_factory=list)

    def add(self, output: torch.Tensor | None, model: nn.Module, gradients: list[torch.Tensor]) -> None:
        """Note a step after the optimizer's update."""
        if output is not None:
            self.outputs.append(local(output))
        self.gradients.append(gradients)
        self.parameters.append([local(parameter) for parameter in model.parameters()])


def local(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's part of a tensor, copied to the CPU."""
    tensor = tensor.detach()
    return (tensor.to_local() if isinstance(tensor, DTensor) else tensor).cpu().clone()


def gradients_of(model: nn.Module) -> list[torch.Tensor]:
    """This rank's part of every gradient, on the CPU."""
    return [local(parameter.grad) for parameter in model.parameters() if parameter.grad is not None]


def compare(records: dict[str, Record], rtol: float = 1e-4, atol: float = 1e-5) -> str:
    """Check on this rank that the run on `neuron` did what the run on the CPU did; say so in one line."""
    if len(records) < 2:
        return f"rank {dist.get_rank()}: {', '.join(records)} ran"
    cpu, device = records["cpu"], records["neuron"]
    for name in ("outputs", "gradients", "parameters"):
        torch.testing.assert_close(getattr(device, name), getattr(cpu, name), rtol=rtol, atol=atol)
    steps = len(cpu.gradients)
    return f"rank {dist.get_rank()}: cpu and neuron agree in outputs, gradients and parameters of {steps} steps"
