"""Device memory as XLA's arrays: read where it lies, of every dtype, and without jax."""

import json
import subprocess
import sys

import pytest
import torch
from torch import Tensor

from torch_neuronx_compile.compilers.emulator.arrays import described

from .helpers import compiled


def largest_first(x: Tensor) -> Tensor:
    """Sort, which only XLA does: a program of a few element-wise steps would run without it."""
    return x.sort(-1, descending=True).values


def test_inputs_are_read_where_they_are() -> None:
    function, x = compiled(largest_first), torch.zeros(64, device="neuron")
    for value in range(5):
        x.copy_(torch.arange(64) * value)
        assert function(x)[0].item() == 63 * value


def test_a_copy_of_what_is_not_aligned_is_made_at_every_call() -> None:
    base = torch.arange(65.0, device="neuron")
    function = compiled(largest_first)
    assert function(base[1:])[0].item() == 64
    base.zero_()
    assert function(base[1:])[0].item() == 0


@pytest.mark.parametrize(
    "dtype",
    [
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.bool),
    ],
    ids=str,
)
def test_descriptions_have_the_elements_size(dtype: torch.dtype) -> None:
    assert described(str(dtype).removeprefix("torch."), [2, 3]).dtype.itemsize == dtype.itemsize


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.uint8, torch.bool], ids=str
)
@pytest.mark.parametrize("shape", [(2, 5), (0, 5), ()], ids=str)
def test_arrays_hold_what_tensors_hold(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    def pick(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return torch.where(x > y, x, y), x.sort(-1).values

    torch.manual_seed(0)
    x, y = ((torch.randn(shape) * 40).to(dtype) for _ in range(2))
    for actual, expected in zip(compiled(pick)(x.to("neuron"), y.to("neuron")), pick(x, y), strict=True):
        assert torch.equal(actual.cpu(), expected)


def test_numbers_of_64_bits_stay_what_they_are() -> None:
    x = torch.tensor([2**62, -(2**61), 3])
    assert compiled(largest_first)(x.to("neuron")).tolist() == [2**62, 3, -(2**61)]


PROGRAM = """
import json, sys, torch
def run(size):
    x = torch.arange(float(size), device="neuron").reshape(-1, 8)
    compiled = torch.compile(lambda x: x.softmax(-1).sort(-1, descending=True).values, backend="neuron")
    assert torch.allclose(compiled(x).sum(-1).cpu(), torch.ones(size // 8))
"""

WITH_JAX = """
def run_jax():
    import jax
    from jax import numpy as jnp
    assert jax.jit(lambda x: x * 2)(jnp.arange(8.0).reshape(1, 8)).sum() == 56
    shared = jax.dlpack.from_dlpack(torch.ones(2, 8))
    assert (shared.shape, shared.aval.shape, float(shared.sum())) == ((2, 8), (2, 8), 16.0)
"""


def loaded(program: str) -> dict[str, bool]:
    """Run ``program`` in a process of its own; return which libraries it has loaded at the end."""
    report = 'print(json.dumps({name: name in sys.modules for name in ("jax", "jaxlib")}))'
    command = [sys.executable, "-W", "error", "-c", f"{PROGRAM}{WITH_JAX}{program}\n{report}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    libraries: dict[str, bool] = json.loads(done.stdout)
    return libraries


def test_programs_run_without_jax() -> None:
    """Its import would take a quarter of a second in every process."""
    assert loaded("run(8)") == {"jax": False, "jaxlib": True}


@pytest.mark.parametrize("program", ["run_jax(); run(8); run(16); run_jax()", "run(8); run(16); run_jax(); run(16)"])
def test_jax_works_in_the_same_process(program: str) -> None:
    assert loaded(program) == {"jax": True, "jaxlib": True}
