"""The kernels of examples/nki against PyTorch, on device neuron."""

import importlib.util
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

FOLDER = Path(__file__).parents[3] / "examples" / "nki"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"nki_example_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype).to("neuron")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [128, 300, 7])
def test_tensor_add(rows: int, dtype: torch.dtype) -> None:
    a, b = random(rows, 33, dtype=dtype), random(rows, 33, dtype=dtype, seed=1)
    assert torch.equal(example("tensor_add").tensor_add(a, b), a + b)


@pytest.mark.parametrize("kernel", ["matmul_tiled", "matmul_blocked"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_matmul(kernel: str, dtype: torch.dtype) -> None:
    a, b = random(256, 256, dtype=dtype), random(256, 1024, dtype=dtype, seed=1)
    got = getattr(example("matmul"), kernel)(a, b)
    torch.testing.assert_close(got, a.T @ b, rtol=2e-2 if dtype == torch.bfloat16 else 1e-4, atol=1e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_softmax(dtype: torch.dtype) -> None:
    x = random(200, 65, dtype=dtype)
    torch.testing.assert_close(example("softmax").softmax(x), torch.softmax(x.float(), -1).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rms_norm(dtype: torch.dtype) -> None:
    x, weight = random(200, 64, dtype=dtype), random(1, 64, dtype=dtype, seed=1)
    expected = torch.nn.functional.rms_norm(x.float(), (64,), weight[0].float(), eps=1e-6).to(dtype)
    torch.testing.assert_close(example("rms_norm").rms_norm(x, weight), expected)


def test_the_cache_is_updated_in_place() -> None:
    update = example("kv_cache").update_cache
    keys, values = torch.zeros(50, 8, device="neuron"), torch.ones(50, 8, device="neuron")
    new = random(130, 8)
    slots = torch.full((130, 1), -1, dtype=torch.int32, device="neuron")
    slots[3], slots[129], slots[5] = 7, 49, 50
    update(keys, values, new, -new, slots)
    expected = torch.zeros(50, 8)
    expected[7], expected[49] = new[3].cpu(), new[129].cpu()
    assert torch.equal(keys.cpu(), expected)
    assert torch.equal(values.cpu()[[7, 49]], -expected[[7, 49]])
    assert torch.equal(values.cpu()[8], torch.ones(8))


def _agree(function: Callable[..., torch.Tensor], reference: Callable[..., torch.Tensor], *given: torch.Tensor) -> None:
    """Compare values and gradients, eager and compiled."""
    given = tuple(tensor.requires_grad_() for tensor in given)
    expected = reference(*given)
    gradients = torch.autograd.grad(expected.square().sum(), given)
    torch._dynamo.reset()
    for way in (function, torch.compile(function, backend="neuron", fullgraph=True)):
        result = way(*given)
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)
        found = torch.autograd.grad(result.square().sum(), given)
        torch.testing.assert_close(found, gradients, rtol=1e-3, atol=1e-4)


def test_flash_attention() -> None:
    attention = example("flash_attention").attention
    given = (random(2, 128, 32), random(2, 256, 32, seed=1), random(2, 256, 32, seed=2))
    _agree(lambda *x: attention(*x, 32**-0.5), torch.nn.functional.scaled_dot_product_attention, *given)


def test_fused_mlp() -> None:
    def reference(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
        return (torch.nn.functional.silu(x @ gate) * (x @ up)) @ down

    shapes = ((256, 256), (256, 384), (256, 384), (384, 256))
    _agree(example("fused_mlp").mlp, reference, *((random(*s, seed=i) / 16).detach() for i, s in enumerate(shapes)))


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.py")))
def test_examples_run_as_programs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    assert capsys.readouterr().out
