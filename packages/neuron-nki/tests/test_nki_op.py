"""Operators made by ``nki_op``: eager, gradients, shapes, compilation, mutation, and what is refused."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torch_neuronx_nki import NkiSchemaError, NkiShapeError, nki_op

DEVICES = ["cpu", "neuron"]


@nki_op("nki_tests::scale_add")
def scale_add(x: torch.Tensor, y: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
    return x * factor + y


def _save(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.factor = inputs[2]


def _backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    return grad * ctx.factor, grad, None


scale_add.register_autograd(_backward, setup_context=_save)


@nki_op("nki_tests::split_sign")
def split_sign(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.clamp(min=0), x.clamp(max=0)


@nki_op("nki_tests::update_cache", mutates_args={"keys", "values"})
def update_cache(keys: torch.Tensor, values: torch.Tensor, new: torch.Tensor, position: int) -> None:
    keys[position] = new
    values[position] = -new


@nki_op("nki_tests::join")
def join(parts: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat(parts)


@pytest.mark.parametrize("device", DEVICES)
class TestEager:
    def test_runs_the_function_where_the_tensors_are(self, device: str) -> None:
        x = torch.arange(6.0, device=device).reshape(2, 3)
        result = scale_add(x, torch.ones(2, 3, device=device), 3.0)
        assert result.device.type == device
        torch.testing.assert_close(result.cpu(), x.cpu() * 3 + 1)

    def test_is_an_ordinary_operator(self, device: str) -> None:
        x = torch.ones(2, device=device)
        torch.testing.assert_close(torch.ops.nki_tests.scale_add(x, x).cpu(), torch.full((2,), 3.0))
        assert str(torch.ops.nki_tests.scale_add.default._schema) == (
            "nki_tests::scale_add(Tensor x, Tensor y, float factor=2.) -> Tensor"
        )

    def test_returns_several_tensors(self, device: str) -> None:
        positive, negative = split_sign(torch.tensor([-1.0, 2.0], device=device))
        assert positive.tolist() == [0.0, 2.0]
        assert negative.tolist() == [-1.0, 0.0]

    def test_takes_lists_of_tensors(self, device: str) -> None:
        parts = [torch.ones(2, device=device), torch.zeros(1, device=device)]
        assert join(parts).tolist() == [1.0, 1.0, 0.0]

    def test_writes_to_the_arguments_it_names(self, device: str) -> None:
        keys, values = torch.zeros(2, 4, 3, device=device)
        versions = keys._version, values._version
        assert update_cache(keys, values, torch.ones(3, device=device), 2) is None
        assert keys.sum().item() == 3
        assert values[2].tolist() == [-1.0, -1.0, -1.0]
        assert (keys._version, values._version) > versions

    def test_gradients_are_those_registered(self, device: str) -> None:
        x = torch.randn(4, device=device, requires_grad=True)
        y = torch.randn(4, device=device, requires_grad=True)
        scale_add(x, y, 5.0).sum().backward()
        assert x.grad is not None
        assert y.grad is not None
        assert x.grad.tolist() == [5.0] * 4
        assert y.grad.tolist() == [1.0] * 4

    def test_without_a_registered_gradient_backward_says_so(self, device: str) -> None:
        positive, _ = split_sign(torch.ones(2, device=device, requires_grad=True))
        with pytest.raises(RuntimeError, match="split_sign"):
            positive.sum().backward()

    @pytest.mark.parametrize(
        ("operator", "arguments"),
        [
            (scale_add, lambda device: (_leaf(device), _leaf(device), 3.0)),
            (split_sign, lambda device: (torch.randn(3, 2, device=device),)),
            (update_cache, lambda device: (*torch.zeros(2, 4, 3, device=device), torch.ones(3, device=device), 1)),
            (join, lambda device: ([torch.randn(2, 2, device=device), torch.randn(1, 2, device=device)],)),
        ],
        ids=["gradient", "tuple", "mutation", "list"],
    )
    def test_passes_torchs_own_checks(
        self, device: str, operator: Any, arguments: Callable[[str], tuple[Any, ...]]
    ) -> None:
        torch.library.opcheck(operator, arguments(device), test_utils=_CHECKS[device])


_ALL_CHECKS = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
# torch looks at autograd registrations for its own devices only
_CHECKS = {"cpu": _ALL_CHECKS, "neuron": tuple(check for check in _ALL_CHECKS if "autograd" not in check)}


def _leaf(device: str) -> torch.Tensor:
    return torch.randn(3, 2, device=device).requires_grad_()


class TestShapes:
    @given(
        shape=st.lists(st.integers(0, 5), min_size=1, max_size=3),
        dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    )
    def test_follow_from_the_function(self, shape: list[int], dtype: torch.dtype) -> None:
        x = torch.empty(shape, dtype=dtype, device="meta")
        positive, negative = split_sign(x)
        assert positive.shape == negative.shape == torch.Size(shape)
        assert positive.dtype == dtype
        assert join([x, x]).shape[0] == 2 * shape[0]

    def test_mutation_leaves_no_trace_without_data(self) -> None:
        keys = torch.empty(4, 3, device="meta")
        update_cache(keys, keys.clone(), torch.empty(3, device="meta"), 0)
        assert keys.shape == (4, 3)

    def test_that_depend_on_values_are_refused_with_the_way_out(self) -> None:
        @nki_op("nki_tests::first_n")
        def first_n(x: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
            return x[: int(count.item())].clone()

        x, count = torch.arange(4.0), torch.tensor(2)
        assert first_n(x, count).tolist() == [0.0, 1.0]
        with pytest.raises(NkiShapeError, match=r"first_n.*@first_n\.register_fake"):
            first_n(x.to("meta"), count.to("meta"))

    def test_that_are_registered_win(self) -> None:
        @nki_op("nki_tests::through_numpy")
        def through_numpy(x: torch.Tensor) -> torch.Tensor:
            return torch.from_numpy(x.detach().cpu().numpy() + 1).to(x.device)

        @through_numpy.register_fake
        def _(x: torch.Tensor) -> torch.Tensor:
            return torch.empty_like(x)

        torch.library.opcheck(through_numpy, (torch.ones(2, 2),))
        assert through_numpy(torch.ones(2, device="neuron")).tolist() == [2.0, 2.0]


@pytest.mark.parametrize("device", DEVICES)
class TestCompiled:
    @pytest.fixture(autouse=True)
    def _fresh_dynamo(self) -> Any:
        torch._dynamo.reset()
        yield
        torch._dynamo.reset()

    def test_is_one_call_in_a_full_graph(self, device: str) -> None:
        graphs: list[torch.fx.GraphModule] = []

        def keep(graph: torch.fx.GraphModule, inputs: Any) -> Any:
            graphs.append(graph)
            return graph

        def program(x: torch.Tensor) -> torch.Tensor:
            return scale_add(x.sin(), x, 3.0).relu()

        x = torch.randn(5, device=device)
        result = torch.compile(program, backend=keep, fullgraph=True)(x)
        torch.testing.assert_close(result, program(x))
        (graph,) = graphs
        calls = [node for node in graph.graph.nodes if node.target is torch.ops.nki_tests.scale_add.default]
        assert len(calls) == 1

    def test_gradients_agree_with_eager(self, device: str) -> None:
        def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return (scale_add(x, y, 3.0) ** 2).sum()

        compiled = torch.compile(program, backend="aot_eager", fullgraph=True)
        x, y = (torch.randn(4, device=device, requires_grad=True) for _ in range(2))
        eager = torch.autograd.grad(program(x, y), (x, y))
        traced = torch.autograd.grad(compiled(x, y), (x, y))
        torch.testing.assert_close(traced, eager)

    def test_mutation_reaches_the_callers_tensor(self, device: str) -> None:
        def program(keys: torch.Tensor, values: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
            update_cache(keys, values, new, 1)
            return keys + values

        keys, values = torch.zeros(2, 4, 3, device=device)
        result = torch.compile(program, backend="aot_eager", fullgraph=True)(keys, values, torch.ones(3, device=device))
        assert keys[1].tolist() == [1.0, 1.0, 1.0]
        assert values[1].tolist() == [-1.0, -1.0, -1.0]
        assert result.abs().sum().item() == 0

    def test_several_results(self, device: str) -> None:
        def program(x: torch.Tensor) -> torch.Tensor:
            positive, negative = split_sign(x)
            return positive - negative

        x = torch.randn(6, device=device)
        result = torch.compile(program, backend="aot_eager", fullgraph=True)(x)
        torch.testing.assert_close(result, x.abs())


def _good(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


def _no_annotation(x):  # type: ignore[no-untyped-def]
    return x.clone()


def _no_result(x: torch.Tensor):  # type: ignore[no-untyped-def]
    return x.clone()


def _variadic(*x: torch.Tensor) -> torch.Tensor:
    return x[0].clone()


def _odd_type(x: torch.Tensor, table: dict[str, int]) -> torch.Tensor:
    return x.clone()


def _count(x: torch.Tensor, count: int) -> torch.Tensor:
    return x * count


class TestRefusals:
    @pytest.mark.parametrize(
        ("name", "function", "mutates_args", "says"),
        [
            ("scale", _good, (), "'scale' does not name an operator"),
            ("a::b::c", _good, (), "does not name an operator"),
            ("a::b-c", _good, (), "does not name an operator"),
            ("aten::relu", _good, (), "belongs to PyTorch"),
            ("nki_tests::bad", _good, "x", r"\('x',\)"),
            ("nki_tests::bad", _good, ("z",), "not found in the custom op's signature"),
            ("nki_tests::bad", _count, ("count",), "only Tensors"),
            ("nki_tests::bad", _no_annotation, (), "x must have a type annotation"),
            ("nki_tests::bad", _no_result, (), "return type annotation"),
            ("nki_tests::bad", _variadic, (), "varargs"),
            ("nki_tests::bad", _odd_type, (), "table has unsupported type"),
            ("nki_tests::bad", torch.nn.ReLU(), (), "not a Python function"),
        ],
    )
    def test_no_schema(self, name: str, function: Any, mutates_args: Any, says: str) -> None:
        with pytest.raises(NkiSchemaError, match=says):
            nki_op(name, function, mutates_args=mutates_args)

    def test_a_result_that_is_an_argument(self) -> None:
        @nki_op("nki_tests::identity")
        def identity(x: torch.Tensor) -> torch.Tensor:
            return x

        with pytest.raises(RuntimeError, match="alias"):
            identity(torch.ones(1))

    def test_a_gradient_for_an_operator_that_writes_to_its_arguments(self) -> None:
        with pytest.raises(RuntimeError, match="non-functional"):
            update_cache.register_autograd(_backward)

    def test_a_schema_error_leaves_no_operator_behind(self) -> None:
        with pytest.raises(NkiSchemaError):
            nki_op("nki_tests::never", _no_result)
        assert not hasattr(torch.ops.nki_tests, "never")


def test_empty_mapping_stands_for_no_mutation() -> None:
    operator = nki_op("nki_tests::copy_of", _good, mutates_args={})
    assert operator(torch.ones(1)).tolist() == [1.0]


def test_the_core_offers_it() -> None:
    import torch_neuronx

    assert torch_neuronx.nki_op is nki_op
