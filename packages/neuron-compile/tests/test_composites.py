"""Composites in the canonical program, and what compilers that know none of them get."""

import re
from pathlib import Path

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention as attention

from torch_neuronx_compile.compilers.neuronx_cc.hlo import hlo_module
from torch_neuronx_compile.worker.canonical import portable

from .helpers import compiled

PROGRAM = """
    func.func private @defined(%x: tensor<4xf32>) -> tensor<4xf32> {
      %0 = stablehlo.tanh %x : tensor<4xf32>
      return %0 : tensor<4xf32>
    }
    func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
      %0 = stablehlo.composite "neuron.attention" %x {decomposition = @defined} : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }"""


def test_neuronx_cc_gets_the_definition_and_no_composite() -> None:
    module = hlo_module(portable(f"module {{ {PROGRAM} }}"))
    assert b"tanh" in module
    for name in (b"composite", b"neuron.attention", b"call"):
        assert name not in module


def test_layers_of_one_shape_share_a_definition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_NEURONX_DEBUG_DIR", str(tmp_path))
    monkeypatch.setenv("TORCH_NEURONX_PRESERVE_COMPILATION_ARTIFACTS", "1")
    query = torch.randn(1, 2, 8, 4, device="neuron")

    def layers(x: torch.Tensor) -> torch.Tensor:
        for causal in (False, True, True):
            x = attention(x, x, x, is_causal=causal)
        return x

    compiled(layers)(query)
    (program,) = tmp_path.rglob("*.stablehlo.mlir")
    text = program.read_text()
    assert len(re.findall("stablehlo.composite", text)) == 3
    assert len(re.findall("func.func private @neuron.attention", text)) == 2
