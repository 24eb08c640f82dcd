"""What functions of ``nki.language`` need and no single instruction does."""

import warnings
from typing import Any

import torch

from torch_neuronx_nki.checks import ON_CHIP, Checker
from torch_neuronx_nki.engines import Engine
from torch_neuronx_nki.errors import NkiWarning
from torch_neuronx_nki.issue import Plan, issue, opcode
from torch_neuronx_nki.ops import WITHOUT_HARDWARE, Operator
from torch_neuronx_nki.simulator import arithmetic
from torch_neuronx_nki.tensors import NkiTensor


@opcode(">dst data operand", "op")
def _composed(check: Checker, dst: Any, data: Any, operand: Any, op: Operator) -> Plan:
    for name, tile in (("dst", dst), ("data", data)):
        check.buffer(name, check.tensor(name, tile), ON_CHIP)
        check.not_packed(name, tile)
    check.same_elements(dst=dst, data=data)
    if type(operand) is NkiTensor and operand.shape != data.shape:
        check.per_partition("operand", operand, data, float32_only=False)
    if op in WITHOUT_HARDWARE:
        warnings.warn(f"nl.{op.name} is not in the chip's table of operators.", NkiWarning, stacklevel=6)
    rank, load, save, compute = len(data.shape), data.codec.load, arithmetic.saver(dst, data.shape), op.compute
    load_operand = operand.codec.load if type(operand) is NkiTensor else None

    def run(out: torch.Tensor, x: torch.Tensor, y: Any) -> None:
        if y is None:
            save(out, compute(load(x)))
        else:
            other = load_operand(y) if load_operand is not None else y
            save(out, compute(load(x), arithmetic.as_operand(other, rank)))

    return Plan(run, Engine.vector)


def composed(dst: NkiTensor, op: Operator, data: NkiTensor, operand: Any = None) -> Any:
    """Compute an operator that only ``nki.language`` has."""
    return issue(_composed, (dst, data, operand), (op,))
