"""The hooks that this package implements. Imports no torch: the command line loads it too."""

import dataclasses

from neuron_lab.report import FallbackReport
from torch_neuronx.events import Event, OpFellBack
from torch_neuronx.hookspecs import hookimpl
from torch_neuronx.targets import TRN2, Target

TRN2_HALF = dataclasses.replace(TRN2, name="trn2-half", hbm_per_chip=TRN2.hbm_per_chip // 2)

report = FallbackReport()


@hookimpl
def torch_neuronx_register_targets() -> list[Target]:
    """Add a Trainium2 chip with half the memory."""
    return [TRN2_HALF]


@hookimpl
def torch_neuronx_observe(event: Event) -> None:
    """Count what ran on the CPU."""
    if isinstance(event, OpFellBack):
        report.add(event)
