"""The running results that the scalar and the vector engine keep between instructions, one per partition.

``idle`` leaves them alone; ``reset`` sets them to what the reduction starts from; ``reduce`` folds an instruction's
results in; ``reset_reduce`` does both; ``load_reduce`` starts from the tile that the instruction names.
"""

from typing import Any

import torch

from torch_neuronx_nki.engines import ReduceCmd
from torch_neuronx_nki.machine import Core, current_core
from torch_neuronx_nki.ops import Operator
from torch_neuronx_nki.targets import PARTITIONS


def _registers(core: Core, vector: bool) -> torch.Tensor:
    registers = core.vector_accumulator if vector else core.scalar_accumulator
    if registers is None:
        registers = torch.full((PARTITIONS, 1), torch.nan)
        if vector:
            core.vector_accumulator = registers
        else:
            core.scalar_accumulator = registers
    return registers


def accumulate(
    values: torch.Tensor,
    op: Operator,
    command: ReduceCmd,
    partition: int,
    *,
    vector: bool,
    initial: Any = None,
) -> torch.Tensor:
    """Fold ``values`` (partitions first, float32) into the engine's running result and return it, (partitions, 1)."""
    registers = _registers(current_core(), vector)
    if values.shape[0] != PARTITIONS:
        registers = registers[partition : partition + values.shape[0]]
    if command is ReduceCmd.reset_reduce:
        return registers.copy_(_reduced(op, values))  # the identity changes no result
    if command is ReduceCmd.reset:
        registers.fill_(op.identity if op.identity is not None else 0.0)
    elif command is ReduceCmd.load_reduce:
        if isinstance(initial, torch.Tensor):
            registers.copy_(initial.reshape(-1, 1))
        else:
            registers.fill_(float(initial or 0.0))
    if command in (ReduceCmd.reduce, ReduceCmd.load_reduce):
        registers.copy_(op.compute(registers, _reduced(op, values)))
    return registers


def _reduced(op: Operator, values: torch.Tensor) -> torch.Tensor:
    assert op.reduce is not None
    return op.reduce(values.reshape(values.shape[0], -1), (1,))
