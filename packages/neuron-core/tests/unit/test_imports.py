"""Modules that must work where torch is not installed."""

import subprocess
import sys

import pytest

TORCH_FREE = [
    "builtin",
    "compiler",
    "compilers",
    "config",
    "errors",
    "events",
    "hookspecs",
    "installed",
    "kernels",
    "logs",
    "lowerings",
    "metrics",
    "neff",
    "op_status",
    "plugins",
    "runtimes.emulator",
    "runtimes.interface",
    "runtimes.nrt",
    "runtimes.select",
    "targets",
]

BLOCKED = """
import sys

for name in ("torch", "numpy", "jax", "jaxlib", "torch_mlir"):
    sys.modules[name] = None  # any import of it raises

import importlib

importlib.import_module("torch_neuronx." + sys.argv[1])
"""


@pytest.mark.parametrize("module", TORCH_FREE)
def test_imports_without_torch(module: str) -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", BLOCKED, module], check=True, timeout=60)


def test_the_plugin_manager_answers_without_torch() -> None:
    ask = BLOCKED + "from torch_neuronx import plugins, targets\nprint(*plugins.manager().targets())"
    done = subprocess.run(
        [sys.executable, "-c", ask, "plugins"], check=True, timeout=60, capture_output=True, text=True
    )
    assert {"trn2", "trn3"} <= set(done.stdout.split())
