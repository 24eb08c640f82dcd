"""What passes from stage to stage: one frozen dataclass each."""

from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import fx

from torch_neuronx import config


class GraphKind(StrEnum):
    """Which of AOT Autograd's graphs this is."""

    FORWARD = "forward"
    BACKWARD = "backward"
    INFERENCE = "inference"


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor of a graph as the user's program sees it."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    on_cpu: bool = False
    """Whether the graph itself puts it on the CPU and returns it."""
    order: tuple[int, ...] = ()
    """A result's dimensions as they follow each other in memory, where these are not in order."""


@dataclass(frozen=True, slots=True)
class Computed:
    """An output that the program computes: its position among the program's results."""

    result: int


@dataclass(frozen=True, slots=True)
class Passed:
    """An output that is one of the call's arguments."""

    argument: int


@dataclass(frozen=True, slots=True)
class Viewed:
    """An output that shares the memory of another one, or of what both are views of: a view of a program's result."""

    result: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    """Elements from the start of the result."""


OutputSource = Computed | Passed | Viewed | None
"""Where an output of the graph comes from; ``None``: there is no tensor."""


@dataclass(frozen=True, slots=True)
class CompilationUnit:
    """One graph, ready to be lowered.

    The placeholders of ``graph`` are the call's ``arguments`` that it reads, then ``constants``, then, where
    ``seeds`` is not 0, an int64 tensor of that many seeds. Its output node holds the results.
    """

    name: str
    kind: GraphKind
    graph: fx.Graph
    device: torch.device
    arguments: tuple[int, ...]
    """Positions among the call's arguments."""
    inputs: tuple[TensorSpec, ...]
    """The arguments' specs, in the order of ``arguments``."""
    constants: tuple[torch.Tensor, ...]
    seeds: int
    narrowed: bool
    """Whether the program has float32 where the caller's tensors are float64."""
    outputs: tuple[OutputSource, ...]
    results: tuple[TensorSpec, ...]

    updated: tuple[int, ...] = ()
    """The call's arguments that the first outputs are new values of, in that order: what runs the graph writes them."""

    def goes_back(self, result: TensorSpec) -> bool:
        """Whether a result is copied to the CPU: a gradient goes where its leaf is, others if the user wants it.

        The user says so for all that is on the CPU by a variable, and in the program for one tensor: by ``.cpu()``, or
        by making it there.
        """
        return result.device.type == "cpu" and (
            self.kind is GraphKind.BACKWARD or result.on_cpu or config.get(config.RETAIN_DEVICE_MODE)
        )


@dataclass(frozen=True, slots=True)
class LoweredProgram:
    """A unit as canonical StableHLO."""

    unit: CompilationUnit
    program: bytes
    """Portable artifact; the same graph gives the same bytes."""
    key: str
    """Content key: of the program and of whatever else decides what it computes."""
    made: bool = True
    """Whether the lowering ran; otherwise the program was found."""


@dataclass(frozen=True, slots=True)
class CompiledProgram:
    """A lowered unit and its NEFF."""

    lowered: LoweredProgram
    neff: bytes
