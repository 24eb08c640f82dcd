"""Kernels inside graphs that are compiled for the device: values, gradients, writes, keys, errors, recompilations."""

import base64
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from test_wrap import add_to, scaled_sum
from torch.fx.experimental.proxy_tensor import make_fx

from torch_neuronx import metrics
from torch_neuronx_nki import NkiLaunchError, NkiValidationError, equivalent, graph_calls, nki_op
from torch_neuronx_nki import collectives as ncc
from torch_neuronx_nki import isa as nisa
from torch_neuronx_nki import language as nl
from torch_neuronx_nki.graph_calls import GraphCall
from torch_neuronx_nki.jit import jit


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for name in ("DEBUG_DIR", "NEFF_CACHE_DIR", "HLO_CACHE_DIR", "NEFF_LOCAL_CACHE_DIR"):
        monkeypatch.setenv(f"TORCH_NEURONX_{name}", str(tmp_path / name))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    torch._dynamo.reset()
    metrics.clear_all()
    yield
    torch._dynamo.reset()


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, backend="neuron", fullgraph=True)


def count(name: str) -> int:
    return metrics.get_counter_value(name) or 0


def keys() -> list[str]:
    from torch_neuronx.neuron_dynamo_backend import get_dynamo_metrics

    return [record.graph_id for record in get_dynamo_metrics()]


@nki_op("nki_tests_compiled::blend")
def blend(x: torch.Tensor, y: torch.Tensor, factor: float) -> torch.Tensor:
    return scaled_sum(x, y, factor)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.factor = inputs[2]


def _gradient(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    return grad, blend(torch.zeros_like(grad), grad, ctx.factor), None


blend.register_autograd(_gradient, setup_context=_keep)


@nki_op("nki_tests_compiled::accumulate", mutates_args=("total",))
def accumulate(total: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return add_to(total, x)["doubled"]


def test_a_launch_is_the_documented_custom_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_NEURONX_PRESERVE_COMPILATION_ARTIFACTS", "1")
    x, y = torch.randn(2, 4, 6, device="neuron")
    function = compiled(lambda x, y: scaled_sum[2](x.sin(), y.mT.contiguous().mT, 3.0) * 2)
    torch.testing.assert_close(function(x, y), (x.sin() + 3 * y) * 2)
    (program,) = tmp_path.rglob("*stablehlo*.mlir")
    text = program.read_text()
    assert text.count("stablehlo.custom_call @AwsNeuronCustomNativeKernel(") == 1
    assert count("Kernels.Simulated.scaled_sum") == 1
    (encoded,) = re.findall(r'backend_config = "([A-Za-z0-9+/=]+)"', text)
    config = json.loads(base64.b64decode(encoded))
    assert config["func_name"] == "scaled_sum"
    assert config["grid"] == [2]
    assert config["kernel_version"] == "0.7"
    assert config["klir_binary"]["input_names"] == ["a", "b"]
    assert config["klir_binary"]["output_names"] == ["output_0"]
    assert not config["has_collectives"]
    assert "has_collectives = false" in text
    assert "operand_output_aliases = array<i64" in text


@jit
def summed(parts: Any, total: Any) -> Any:
    everyone = ncc.ReplicaGroup([[0]])
    ncc.all_reduce([parts[0]], [total], everyone, nl.add)
    out = nl.ndarray(total.shape, dtype=total.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out, parts[1])
    return out


def test_the_call_says_what_is_written_and_who_communicates() -> None:
    x, y, total = (torch.randn(2, 3, device="neuron") for _ in range(3))

    def program(x: torch.Tensor, y: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        return summed((x, y), total)

    graph = make_fx(program, tracing_mode="fake")(x, y, total).graph
    (launch,) = [node for node in graph.nodes if "launch_2" in str(node.target)]
    _, backend_config, has_collectives, aliases = launch.args
    assert (has_collectives, aliases) == (True, [2, 0])
    call = GraphCall.read(backend_config)
    assert call.inputs == ("parts.0", "parts.1", "total")
    assert (call.mutated, call.has_collectives, call.backend_config()) == ((2,), True, backend_config)
    assert torch.equal(compiled(program)(x, y, total), y)
    assert torch.equal(total, x)


@pytest.mark.parametrize("text", ["", "!", "e30=", "eyJzaW11bGF0b3IiOiAxfQ=="])
def test_a_call_of_another_version_is_an_error_that_says_so(text: str) -> None:
    with pytest.raises(NkiLaunchError, match="Compile the graph again"):
        graph_calls.operator(1)([torch.ones(2)], text, False, [])


def test_writes_and_results_of_every_form() -> None:
    def program(total: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        before = total * 1
        result = add_to(total, x)
        return result["doubled"] * result["count"] - before, result["total"]

    total, x = torch.ones(3, 4, device="neuron"), torch.randn(3, 4, device="neuron")
    doubled, same = compiled(program)(total, x)
    torch.testing.assert_close(total, 1 + x)
    torch.testing.assert_close(same, 1 + x)
    torch.testing.assert_close(doubled, 1 + 2 * x)


def test_an_operator_that_writes_to_its_arguments() -> None:
    def program(total: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return accumulate(total, x) + accumulate(total, x)

    total, x = torch.zeros(3, 4, device="neuron"), torch.randn(3, 4, device="neuron")
    torch.testing.assert_close(compiled(program)(total, x), 6 * x)
    torch.testing.assert_close(total, 2 * x)


def test_gradients_are_those_of_pytorch() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (blend(x.sin(), y, 3.0) ** 2).sum()

    x, y = (torch.randn(4, 6, device="neuron", requires_grad=True) for _ in range(2))
    expected = torch.autograd.grad(((x.sin() + 3 * y) ** 2).sum(), (x, y))
    torch.testing.assert_close(torch.autograd.grad(program(x, y), (x, y)), expected)
    torch.testing.assert_close(torch.autograd.grad(compiled(program)(x, y), (x, y)), expected)
    assert count("Kernels.Simulated.scaled_sum") == 4


def test_it_is_compiled_again_for_new_shapes_and_constants_only() -> None:
    function = compiled(lambda x, factor: scaled_sum(x, x, factor))
    for shape, factor, total in (((2, 3), 2, 1), ((2, 3), 2, 1), ((2, 3), 4, 2), ((2, 5), 4, 3)):
        x = torch.randn(shape, device="neuron")
        torch.testing.assert_close(function(x, factor), x + factor * x)
        assert count("CompilationCache.TotalCompilations") == total
    assert len(set(keys()[-3:])) == 3


def _kernel(sign: int) -> Any:
    def helper(tile: Any) -> None:
        nisa.tensor_scalar(tile, tile, nl.multiply, float(sign))

    def kernel(x: Any) -> Any:
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray(x.shape, dtype=x.dtype)
        nisa.dma_copy(tile, x)
        helper(tile)
        if nl.program_id(0) == 0:
            nisa.dma_copy(out, tile)
        return out

    return jit(kernel)


def test_source_cores_and_gradient_are_in_the_key() -> None:
    x = torch.ones(2, 3, device="neuron")
    variants = [_kernel(1), _kernel(-1), _kernel(-1)[2], _kernel(-1)]
    results = []
    for kernel in variants:
        torch._dynamo.reset()
        results.append(compiled(lambda x, kernel=kernel: kernel(x))(x)[0, 0].item())
    assert results == [1.0, -1.0, -1.0, -1.0]
    plus, minus, two_cores, again = keys()[-4:]
    assert len({plus, minus, two_cores}) == 3
    assert again == minus


def test_a_new_operator_of_a_name_replaces_the_old_one_with_its_gradient() -> None:
    x = torch.ones(2, 2, device="neuron", requires_grad=True)
    found = []
    for factor in (1.0, 2.0):
        torch._dynamo.reset()
        operator = nki_op("nki_tests_compiled::changing", _blend_like(factor))
        operator.register_autograd(lambda ctx, grad, factor=factor: grad * factor * 10)
        result = compiled(lambda x: torch.ops.nki_tests_compiled.changing(x))(x)
        (grad,) = torch.autograd.grad(result.sum(), x)
        found.append((result[0, 0].item(), grad[0, 0].item()))
    assert found == [(2.0, 10.0), (3.0, 20.0)]


def _blend_like(factor: float) -> Callable[[torch.Tensor], torch.Tensor]:
    def function(x: torch.Tensor) -> torch.Tensor:
        return scaled_sum(x, x, factor)

    return function


@jit
def out_of_bounds(x: Any, rows: Any) -> Any:
    out = nl.ndarray((2, x.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
    index = nl.ndarray((2, 1), dtype=nl.int32)
    tile = nl.ndarray((2, x.shape[1]), dtype=x.dtype)
    nisa.dma_copy(index, rows)
    nisa.dma_copy(tile, x.ap([[x.shape[1], 2], [1, x.shape[1]]], vector_offset=index))
    nisa.dma_copy(out, tile)
    return out


class TestErrors:
    def test_in_a_running_graph_are_the_kernels(self) -> None:
        function = compiled(lambda x, rows: out_of_bounds(x.sin(), rows))
        x = torch.randn(4, 3, device="neuron")
        good, bad = (torch.tensor([[1], [row]], dtype=torch.int32, device="neuron") for row in (3, 9))
        torch.testing.assert_close(function(x, good), x.sin()[[1, 3]])
        with pytest.raises(NkiValidationError, match=r"test_compiled\.py:\d+ in out_of_bounds") as caught:
            function(x, bad)
        assert "inside the program" in caught.value.__notes__[0]
        torch.testing.assert_close(function(x, good), x.sin()[[1, 3]])

    def test_while_tracing_name_the_kernels_line(self) -> None:
        x = torch.randn(4, 3, device="neuron")
        with pytest.raises(torch._dynamo.exc.Unsupported) as caught:
            compiled(lambda x: scaled_sum(x, x[:2]))(x)
        chain: BaseException | None = caught.value
        while chain is not None and not isinstance(chain, NkiValidationError):
            chain = chain.__cause__ or chain.__context__
        assert chain is not None
        assert "test_wrap.py" in str(chain)

    def test_with_graph_breaks_allowed_are_the_kernels(self) -> None:
        x = torch.randn(4, 3, device="neuron")
        with pytest.raises(NkiValidationError, match=r"test_wrap\.py:\d+ in scaled_sum"):
            torch.compile(lambda x: scaled_sum(x, x[:2]), backend="neuron")(x)


@jit
def negated(x: Any) -> Any:
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype)
    nisa.dma_copy(tile, x)
    nisa.tensor_scalar(tile, tile, nl.multiply, -1.0)
    nisa.dma_copy(out, tile)
    return out


@equivalent(negated)
def _(x: torch.Tensor) -> torch.Tensor:
    return -x


@pytest.mark.parametrize("fast", [False, True])
def test_an_equivalent_function_runs_in_its_place_where_asked(monkeypatch: pytest.MonkeyPatch, fast: bool) -> None:
    monkeypatch.setenv("TORCH_NEURONX_EMULATOR_FAST_KERNELS", str(int(fast)))
    x = torch.randn(2, 3, device="neuron")
    for function in (negated, compiled(lambda x: negated(x * 1))):
        torch.testing.assert_close(function(x), -x)
    assert count("Kernels.Replaced.negated") == (2 if fast else 0)
    assert count("Kernels.Simulated.negated") == (0 if fast else 2)


@jit
def reduced(x: Any) -> Any:
    out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
    ncc.all_reduce([x], [out], ncc.ReplicaGroup([[0]]), nl.add)
    return out


@jit
def doubled(x: Any) -> Any:
    out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
    nl.store(out, nl.add(nl.load(x), nl.load(x)))
    return out


def test_launches_in_which_ranks_meet_keep_the_order_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    together: list[int] = []
    running: set[int] = set()

    def execute(call: GraphCall, tensors: Any) -> Any:
        number = int(tensors[0][0, 0])
        if call.has_collectives:
            running.add(number)
            started.append(number)
            together.append(len(running))
        time.sleep(0.005)
        try:
            return original(call, tensors)
        finally:
            running.discard(number)

    original = graph_calls.execute
    monkeypatch.setattr(graph_calls, "execute", execute)

    def body(*inputs: torch.Tensor) -> list[torch.Tensor]:
        return [
            reduced(torch.sort((x @ x.T) @ x, dim=0).values * 0 + x) + doubled((x @ x.T @ x).cumsum(0) * 0 + x)
            for x in inputs
        ]

    inputs = [torch.full((64, 128), float(number), device="neuron") for number in range(6)]
    function = compiled(body)
    for _ in range(5):
        for number, result in enumerate(function(*inputs)):
            assert result[0, 0].item() == 3 * number
    assert started == [*range(6)] * 5
    assert set(together) == {1}
