"""The figures of each generation, one module each: clocks, rates and fixed costs of one core."""

from torch_neuronx_nki.cost.figures import gen2, gen3, gen4
from torch_neuronx_nki.cost.figures.kind import Figures
from torch_neuronx_nki.engines import NcVersion

FIGURES: dict[NcVersion, Figures] = {
    NcVersion.gen2: gen2.FIGURES,
    NcVersion.gen3: gen3.FIGURES,
    NcVersion.gen4: gen4.FIGURES,
}

__all__ = ["FIGURES", "Figures"]
