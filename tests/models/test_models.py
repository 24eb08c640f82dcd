"""Whole models are equal to the CPU, compiled on the device. The libraries' ones run where the libraries are."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.models.zoo import ENTRIES

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ENTRIES)
def test_model(name: str, tmp_path: Path) -> None:
    source = ENTRIES[name].source
    if source != "here" and importlib.util.find_spec(source) is None:
        pytest.skip(f"{source} is not installed: pip install {source}")
    caches = {
        variable: str(tmp_path / variable)
        for variable in ("TORCH_NEURONX_NEFF_CACHE_DIR", "TORCH_NEURONX_HLO_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
    }
    done = subprocess.run(
        [sys.executable, "-m", "tools.models.run", name],
        cwd=ROOT, env=os.environ | caches, capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout.splitlines()[-1])
    assert record["error"] == ""
    assert all(record[step] for step in ("loads", "forward", "backward", "step"))
    assert record["generates"] in (None, True)
    assert record["fallbacks"] == []
