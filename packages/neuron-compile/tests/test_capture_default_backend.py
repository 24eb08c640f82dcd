"""``torch.compile`` without ``backend=``: the device's graphs go to this backend, the CPU's stay Inductor's."""

import os
import subprocess
import sys


def run(script: str, **environment: str) -> None:
    """Run a program in a process of its own: the default is the process's, and set once."""
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], check=True, timeout=300, env={**os.environ, **environment}
    )


def test_the_device_compiles_by_default_and_the_cpu_keeps_inductor() -> None:
    run(
        """
import sys
import torch
from torch._inductor import compile_fx, config  # Dynamo is there before the device is used

assert torch.compiler.get_default_backend() == "inductor"
asked = []
original = compile_fx.compile_fx

def recorded(*args, **kwargs):
    if "config_patches" in kwargs:  # it calls itself without
        asked.append(kwargs["config_patches"])
    return original(*args, **kwargs)

compile_fx.compile_fx = recorded
assert "torch_neuronx_compile.backend" not in sys.modules

x = torch.randn(4, device="neuron")
chosen = repr(torch.compiler.get_default_backend())
assert "neuron" in chosen and "inductor" in chosen

host = torch.compile(lambda x: x.sin() + 1, options={"max_fusion_size": 7})
torch.testing.assert_close(host(x.cpu()), x.cpu().sin() + 1)
assert asked[0]["max_fusion_size"] == 7, asked
tuned = torch.compile(lambda x: x.cos() + 1, mode="max-autotune-no-cudagraphs")
torch.testing.assert_close(tuned(x.cpu()), x.cpu().cos() + 1)
assert asked[1]["max_autotune"] is True, asked
assert "torch_neuronx_compile.backend" not in sys.modules, "the CPU needs nothing of the device's compiler"

function = torch.compile(lambda x: x.sin() + 1)
torch.testing.assert_close(function(x).cpu(), x.cpu().sin() + 1)
from torch_neuronx.neuron_dynamo_backend import get_dynamo_metrics
assert len(get_dynamo_metrics()) == 1 and len(asked) == 2
torch.testing.assert_close(function(x.cpu()), x.cpu().sin() + 1)
assert len(get_dynamo_metrics()) == 1 and len(asked) == 3

big = torch.randn(16_385, device="neuron")
try:
    torch.compile(lambda x: x.sort()[0], fullgraph=True)(big)
except torch._dynamo.exc.Unsupported as error:
    assert error.gb_type == "Op not supported by the Neuron backend"
else:
    raise AssertionError("the call did not break")
torch.compile(lambda x: x.sort()[0], fullgraph=True)(big.cpu())
"""
    )


def test_functions_that_were_decorated_before_the_device_was_used() -> None:
    run(
        """
import warnings
import torch

function = torch.compile(lambda x: x.sin() + 1)
tuned = torch.compile(lambda x: x.cos() + 1, options={"max_fusion_size": 7})
split = torch.compile(lambda x: x.sort()[0].sin())
host = torch.randn(4)
torch.testing.assert_close(function(host), host.sin() + 1)

x = host.to("neuron")
torch.testing.assert_close(function(x).cpu(), host.sin() + 1)
from torch_neuronx.neuron_dynamo_backend import get_dynamo_metrics
assert len(get_dynamo_metrics()) == 1
torch.testing.assert_close(function(host), host.sin() + 1)
assert len(get_dynamo_metrics()) == 1
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    torch.testing.assert_close(tuned(x).cpu(), host.cos() + 1)
assert ["max_fusion_size" in str(warning.message) for warning in caught] == [True], caught
assert len(get_dynamo_metrics()) == 2

big = torch.randn(16_385, device="neuron")
torch.testing.assert_close(split(big).cpu(), big.cpu().sort()[0].sin())
assert torch._dynamo.utils.counters["graph_break"], "the sort is too long"
"""
    )


def test_dynamo_is_not_imported_for_it() -> None:
    run(
        """
import sys
import torch
x = torch.ones(2, device="neuron")
assert "torch._dynamo" not in sys.modules
assert torch.compile(lambda x: x + 1)(x).tolist() == [2.0, 2.0]
assert "neuron" in repr(torch.compiler.get_default_backend())
torch.compiler.set_default_backend(None)
assert torch.compiler.get_default_backend() == "inductor"
"""
    )


def test_nothing_changes_where_the_user_chose_or_the_plugin_is_off() -> None:
    run(
        """
import torch
torch.compiler.set_default_backend("eager")
torch.ones(2, device="neuron")
assert torch.compiler.get_default_backend() == "eager"
"""
    )
    run(
        """
import torch
torch.ones(2, device="neuron")
assert torch.compiler.get_default_backend() == "inductor"
""",
        TORCH_NEURONX_DISABLE_PLUGINS="compile",
    )
