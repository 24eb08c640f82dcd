"""Every test starts without compiled code, metrics and a model name of another test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from torch_neuronx_compile import metrics, naming


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("TORCH_NEURONX_DEBUG_DIR", str(tmp_path / "artifacts"))
    monkeypatch.setenv("TORCH_NEURONX_NEFF_CACHE_DIR", str(tmp_path / "neff"))
    monkeypatch.setenv("TORCH_NEURONX_HLO_CACHE_DIR", str(tmp_path / "hlo"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    monkeypatch.setenv("TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR", str(tmp_path / "local"))
    monkeypatch.setattr(naming, "_model_name", naming.DEFAULT_MODEL_NAME)
    torch._dynamo.reset()
    metrics.reset_dynamo_metrics()
    yield
    torch._dynamo.reset()
