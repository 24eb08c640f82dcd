"""float64 on the device is float32 computed and widened, bit for bit; dtypes are kept; one warning per process."""

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.filterwarnings("ignore::torch_neuronx.errors.Float64Warning")

Function = Callable[[torch.Tensor], torch.Tensor]


def rounded(values: torch.Tensor) -> torch.Tensor:
    return values.float().double()


FUNCTIONS: dict[str, Function] = {
    "abs": torch.abs,
    "add": lambda x: x + x * 3,
    "add scalar": lambda x: x + 0.1,
    "cat": lambda x: torch.cat([x, x / 3]),
    "clone": torch.clone,
    "comparison": lambda x: (x > 0.1).double(),
    "cumsum": lambda x: x.cumsum(0),
    "div": lambda x: x / 3,
    "exp": torch.exp,
    "gelu": torch.nn.functional.gelu,
    "in place": lambda x: x.clone().mul_(3.3).add_(x),
    "linear": lambda x: torch.nn.functional.linear(x.view(10, 10), x.view(10, 10)),
    "log_softmax": lambda x: x.log_softmax(0),
    "matmul": lambda x: x.view(10, 10) @ x.view(10, 10).t(),
    "max": lambda x: x.view(10, 10).max(dim=1).values,
    "mean": torch.mean,
    "norm": torch.linalg.vector_norm,
    "out": lambda x: torch.sin(x, out=torch.empty_like(x)),
    "pow": lambda x: x**3,
    "prod": lambda x: x[:10].prod(),
    "sort": lambda x: x.sort().values,
    "std": torch.std,
    "sum": torch.sum,
    "where": lambda x: torch.where(x > 0, x, x / 7),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_equals_the_float32_result_widened(name: str) -> None:
    function = FUNCTIONS[name]
    values = torch.randn(100, dtype=torch.float64)
    result = function(values.to("neuron"))
    assert result.dtype == torch.float64
    torch.testing.assert_close(result.cpu(), function(values.float()).double(), rtol=0, atol=0)


@pytest.mark.parametrize("name", ["exp", "sum", "matmul", "log_softmax"])
def test_gradients_are_float32_widened(name: str) -> None:
    values = torch.randn(100, dtype=torch.float64)
    on_device = values.to("neuron").requires_grad_()
    FUNCTIONS[name](on_device).sum().backward()
    narrow = values.float().requires_grad_()
    FUNCTIONS[name](narrow).sum().backward()
    assert on_device.grad is not None
    assert narrow.grad is not None
    torch.testing.assert_close(on_device.grad.cpu(), narrow.grad.double(), rtol=0, atol=0)


FACTORIES: dict[str, Callable[..., torch.Tensor]] = {
    "arange": lambda **kw: torch.arange(0, 1, 0.1, **kw),
    "full": lambda **kw: torch.full((3,), 1 / 3, **kw),
    "linspace": lambda **kw: torch.linspace(0, 1, 7, **kw),
    "logspace": lambda **kw: torch.logspace(0, 1, 7, **kw),
    "ones": lambda **kw: torch.ones(3, **kw),
    "scalar_tensor": lambda **kw: torch.scalar_tensor(1 / 3, **kw),
    "tensor": lambda **kw: torch.tensor([1 / 3, 1e-3], **kw),
    "eye": lambda **kw: torch.eye(3, **kw),
}


@pytest.mark.parametrize("name", FACTORIES)
def test_factories_hold_float32_values(name: str) -> None:
    made = FACTORIES[name](dtype=torch.float64, device="neuron")
    assert made.dtype == torch.float64
    torch.testing.assert_close(made.cpu(), FACTORIES[name](dtype=torch.float32).double(), rtol=0, atol=0)


def test_random_numbers_hold_float32_values() -> None:
    drawn = torch.randn(1000, dtype=torch.float64, device="neuron").cpu()
    assert torch.equal(drawn, rounded(drawn))


@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=20))
@settings(max_examples=50, deadline=None)
def test_what_arrives_on_the_device_is_float32(values: list[float]) -> None:
    tensor = torch.tensor(values, dtype=torch.float64)
    torch.testing.assert_close(tensor.to("neuron").cpu(), rounded(tensor), rtol=0, atol=0)


def test_a_dtype_argument_decides_the_result() -> None:
    values = torch.rand(1000, dtype=torch.float64)
    on_device = values.to("neuron")
    assert on_device.sum(dtype=torch.float32).dtype == torch.float32
    widened = values.float().to("neuron").sum(dtype=torch.float64)
    assert widened.dtype == torch.float64
    assert widened.item() == values.float().sum().item()
    assert on_device.to(torch.float32).dtype == torch.float32


def test_type_promotion_is_pytorchs() -> None:
    double = torch.ones(3, dtype=torch.float64, device="neuron")
    assert (double + torch.ones(3, device="neuron")).dtype == torch.float64
    assert (torch.ones(3, device="neuron") + double[0]).dtype == torch.float32
    assert (torch.arange(3, device="neuron") * double).dtype == torch.float64
    assert (torch.arange(3, device="neuron") * double[0]).dtype == torch.float64


def test_an_input_is_not_changed() -> None:
    values = torch.randn(10, dtype=torch.float64).to("neuron")
    before = values.cpu()
    values.exp(), values + 1, values.sort()
    assert torch.equal(values.cpu(), before)


SCRIPT = """
import warnings
import torch
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    x = torch.ones(2, dtype=torch.float64, device="neuron")
    (x + 1).sum().item(); torch.zeros(3, dtype=torch.float64, device="neuron")
names = [w.category.__name__ for w in caught]
assert names.count("Float64Warning") == 1, names
assert "float64 is computed as float32" in str(caught[0].message)
"""


def test_warns_once_per_process() -> None:
    subprocess.run([sys.executable, "-c", SCRIPT], check=True, timeout=120)


RELAXED = """
import torch
values = torch.rand(1000, dtype=torch.float64)
assert torch.equal(values.to("neuron").cpu(), values)
assert values.to("neuron").exp().sum().item() == values.exp().sum().item()
"""


def test_the_relaxed_switch_computes_in_full(subprocess_environment: dict[str, str]) -> None:
    environment = subprocess_environment | {"TORCH_NEURONX_EMULATOR_RELAXED": "1"}
    subprocess.run([sys.executable, "-W", "error", "-c", RELAXED], check=True, timeout=120, env=environment)
