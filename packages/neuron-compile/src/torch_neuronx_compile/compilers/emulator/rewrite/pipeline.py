"""The rewriting as a whole."""

from collections.abc import Callable
from typing import Any

from jaxlib.mlir import ir

from torch_neuronx_compile.compilers.composites import expand_composites
from torch_neuronx_compile.compilers.emulator.rewrite import attention, normalization
from torch_neuronx_compile.compilers.emulator.rewrite.contractions import rewrite_contraction
from torch_neuronx_compile.compilers.emulator.rewrite.convolutions import lengthen_window, rewrite_convolution
from torch_neuronx_compile.compilers.emulator.rewrite.pacing import pace
from torch_neuronx_compile.compilers.emulator.rewrite.rows import rewrite_moments, rewrite_reduction, rewrite_softmax
from torch_neuronx_compile.compilers.emulator.rewrite.windows import rewrite_window
from torch_neuronx_compile.worker.canonical import walk

TARGETS = (
    "neuron_attention",
    "neuron_attention_backward",
    "neuron_contract",
    "neuron_convolve",
    "neuron_layer_norm",
    "neuron_layer_norm_backward",
    "neuron_moments",
    "neuron_pool",
    "neuron_reduce",
    "neuron_softmax",
    "neuron_wait",
)
"""Custom-call targets that a rewritten program may hold."""

_COMPOSITES: dict[str, Callable[[Any], None]] = {**attention.REWRITERS, **normalization.REWRITERS}

_STEPS: tuple[dict[str, Callable[[Any], None]], ...] = (
    {"stablehlo.divide": rewrite_softmax, "stablehlo.subtract": rewrite_softmax},
    {"stablehlo.reduce": rewrite_moments},
    {
        "stablehlo.reduce": rewrite_reduction,
        "stablehlo.dot_general": rewrite_contraction,
        "stablehlo.convolution": rewrite_convolution,
        "stablehlo.reduce_window": rewrite_window,
    },
    {"stablehlo.convolution": lengthen_window},
)


def rewrite(module: ir.Module) -> None:
    """Put calls of ATen into ``module``, wider patterns first."""
    for operation in list(walk(module)):
        if operation.name == "stablehlo.composite":
            name = ir.StringAttr(operation.attributes["name"]).value
            if name in _COMPOSITES:
                _COMPOSITES[name](operation)
    expand_composites(module)
    for step in _STEPS:
        for operation in list(walk(module)):
            if operation.name in step:
                step[operation.name](operation)
        _sweep(module)
    pace(module, TARGETS)


def _sweep(module: ir.Module) -> None:
    """Erase what nothing uses any more."""
    for operation in reversed(list(walk(module))):
        pure = operation.name.startswith("stablehlo.") and operation.name not in _KEPT
        if pure and not any(True for result in operation.results for _ in result.uses):
            operation.erase()


_KEPT = ("stablehlo.return", "stablehlo.custom_call")
