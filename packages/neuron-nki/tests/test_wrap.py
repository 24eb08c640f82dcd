"""Kernels that are called where something else than data is meant: shapes, traces, vmap, export; and fingerprints."""

import enum
import types
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import torch_neuronx
from torch_neuronx_nki import NkiLaunchError, NkiValidationError, wrap_nki
from torch_neuronx_nki import isa as nisa
from torch_neuronx_nki import language as nl
from torch_neuronx_nki.fingerprint import fingerprint
from torch_neuronx_nki.graph_calls import GraphCall, decode, encode, execute
from torch_neuronx_nki.jit import jit

DEVICES = ["cpu", "neuron"]


@jit
def scaled_sum(a: Any, b: Any, factor: Any = 2.0) -> Any:
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    left, right = (nl.ndarray(a.shape, dtype=a.dtype) for _ in range(2))
    nisa.dma_copy(left, a)
    nisa.dma_copy(right, b)
    nisa.tensor_scalar(right, right, nl.multiply, factor)
    nisa.tensor_tensor(left, left, right, op=nl.add)
    if nl.program_id(0) == 0:
        nisa.dma_copy(out, left)
    return out


@jit
def add_to(total: Any, x: Any) -> Any:
    left, right = (nl.ndarray(x.shape, dtype=x.dtype) for _ in range(2))
    nisa.dma_copy(left, total)
    nisa.dma_copy(right, x)
    nisa.tensor_tensor(left, left, right, op=nl.add)
    nisa.dma_copy(total, left)
    doubled = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.tensor_scalar(left, left, nl.multiply, 2.0)
    nisa.dma_copy(doubled, left)
    return {"total": total, "doubled": doubled, "count": 1}


@pytest.mark.parametrize("device", DEVICES)
class TestEager:
    def test_runs_with_positions_and_names_on_one_and_two_cores(self, device: str) -> None:
        x, y = torch.randn(2, 4, 6, device=device)
        wrapped = torch_neuronx.wrap_nki(scaled_sum)
        for result in (wrapped(x, y), wrapped[1](a=x, b=y), wrapped[2](x, factor=2.0, b=y)):
            assert result.device.type == device
            torch.testing.assert_close(result, x + 2 * y)

    def test_a_plain_function_becomes_a_kernel(self, device: str) -> None:
        x = torch.randn(3, 4, device=device)
        torch.testing.assert_close(wrap_nki(scaled_sum.func)(x, x), 3 * x)


def test_what_is_no_kernel_is_refused() -> None:
    with pytest.raises(NkiLaunchError, match="wrap_nki is given 3"):
        wrap_nki(3)


class TestWithoutData:
    def test_fake_tensors_give_fake_tensors_of_the_device(self) -> None:
        with FakeTensorMode():
            x = torch.empty(4, 6, dtype=torch.bfloat16, device="neuron")
            result = add_to(x, x.clone())
        assert result["total"] is x
        assert result["count"] == 1
        assert (result["doubled"].shape, result["doubled"].dtype) == ((4, 6), torch.bfloat16)
        assert result["doubled"].device.type == "neuron"

    def test_a_broken_rule_is_the_kernels(self) -> None:
        with FakeTensorMode(), pytest.raises(NkiValidationError, match=r"test_wrap\.py:\d+ in scaled_sum"):
            scaled_sum(torch.empty(4, 6), torch.empty(4, 5))

    def test_no_tensor_and_no_result_are_refused(self) -> None:
        @jit
        def nothing(x: Any) -> None:
            pass

        with FakeTensorMode():
            with pytest.raises(NkiLaunchError, match="without a tensor"):
                nothing(3)
            with pytest.raises(NkiLaunchError, match=r"gives 0 tensors"):
                nothing(torch.empty(2, 2))


class TestTransforms:
    def test_a_trace_has_one_node_and_writes_show_as_copies(self) -> None:
        from torch.fx.experimental.proxy_tensor import make_fx

        x, y = torch.ones(2, 3), torch.ones(2, 3)
        graph = make_fx(lambda total, x: add_to(total, x)["doubled"])(x, y)
        calls = [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]
        assert calls.count("torch_neuronx_nki.launch_2.default") == 1
        total = torch.ones(2, 3)
        assert graph(total, y).tolist() == [[4.0] * 3] * 2
        assert total.tolist() == [[2.0] * 3] * 2

    def test_vmap_launches_once_per_element(self) -> None:
        x, y = torch.randn(5, 4, 3), torch.randn(3, 4)
        result = torch.func.vmap(lambda a, b: scaled_sum(a, b, 3.0), in_dims=(0, None))(x.mT, y)
        torch.testing.assert_close(result, x.mT + 3 * y)

    def test_vmap_of_several_results(self) -> None:
        total, x = torch.zeros(5, 2, 3), torch.randn(5, 2, 3)
        result = torch.func.vmap(lambda a, b: add_to(a.clone(), b)["doubled"])(total, x)
        torch.testing.assert_close(result, 2 * x)

    def test_export_keeps_the_launch_and_runs_it(self) -> None:
        class Model(torch.nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return scaled_sum(x.sin(), x, 3.0).relu()

        x = torch.randn(2, 3)
        exported = torch.export.export(Model(), (x,))
        assert "torch_neuronx_nki.launch_1" in str(exported.graph)
        torch.testing.assert_close(exported.module()(x), (x.sin() + 3 * x).relu())

    def test_a_launch_in_a_trace_has_no_gradient_and_says_so(self) -> None:
        compiled = torch.compile(lambda x: scaled_sum(x, x), backend="aot_eager", fullgraph=True)
        with pytest.raises(RuntimeError, match="launch_1"):
            compiled(torch.ones(2, 2, requires_grad=True)).sum().backward()


class Mode(enum.Enum):
    FAST = 1


class TestText:
    @pytest.mark.parametrize(
        "value",
        [
            None,
            True,
            -3,
            "text",
            0.1,
            float("-inf"),
            (1, (2.0, [None])),
            {"a": [1], "b": {}},
            Mode.FAST,
            torch.bfloat16,
            nl.float8_e4m3,
            slice(1, 2),
        ],
        ids=str,
    )
    def test_arguments_come_back(self, value: Any) -> None:
        back = decode(encode(value, []), [])
        assert back == value
        assert type(back) is type(value)

    def test_objects_stay_the_same_in_their_process_and_are_refused_in_another(self) -> None:
        thing = object()
        data = encode(thing, [])
        assert decode(data, []) is thing
        with pytest.raises(NkiLaunchError, match="another process"):
            decode({**data, "object": "elsewhere-1"}, [])

    def test_a_kernel_is_found_by_its_name_unless_it_has_changed(self) -> None:
        x = torch.ones(2, 2)
        call = GraphCall(
            kernel=f"{__name__}:scaled_sum",
            fingerprint=fingerprint(scaled_sum.func),
            lnc=1,
            arguments=encode(((x, x), {}), []),
            mutated=(),
            results=(((2, 2), "float32"),),
            settings={},
        )
        assert GraphCall.read(call.backend_config()) == call
        module = types.ModuleType("kernels_of_a_test")
        module.kernel = scaled_sum  # type: ignore[attr-defined]
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(__import__("sys").modules, "kernels_of_a_test", module)
            patch.setattr("torch_neuronx_nki.graph_calls._functions", {})
            named = GraphCall(**{**_fields(call), "kernel": "kernels_of_a_test:kernel"})
            assert execute(named, [x])[0].tolist() == [[3.0, 3.0]] * 2
            patch.setattr("torch_neuronx_nki.graph_calls._functions", {})
            with pytest.raises(NkiLaunchError, match="as it was with the fingerprint 0"):
                execute(GraphCall(**{**_fields(named), "fingerprint": "0"}), [x])
            with pytest.raises(NkiLaunchError, match="cannot be found"):
                execute(GraphCall(**{**_fields(named), "kernel": "nowhere:kernel", "fingerprint": "0"}), [x])


def _fields(call: GraphCall) -> dict[str, Any]:
    return {name: getattr(call, name) for name in GraphCall.__dataclass_fields__}


def _made(source: str, **names: Any) -> Any:
    scope: dict[str, Any] = {"__name__": "somebodys_kernels", **names}
    exec(source, scope)  # a source that a test changes
    return scope["kernel"]


class TestFingerprints:
    BASE = "LIMIT = 3\ndef helper(x):\n    return x + 1\ndef kernel(x, n=2):\n    return helper(x) * n + LIMIT\n"

    def test_the_same_source_is_the_same_whatever_its_lines_and_comments(self) -> None:
        commented = "\n\n" + self.BASE.replace("    return helper", "    # why\n    return helper")
        assert fingerprint(_made(self.BASE)) == fingerprint(_made(commented))

    @pytest.mark.parametrize(
        ("old", "new"),
        [("* n +", "* n -"), ("x + 1", "x + 2"), ("LIMIT = 3", "LIMIT = 4"), ("n=2", "n=3"), ("x + 1", "abs(x)")],
    )
    def test_the_body_helpers_constants_and_defaults_count(self, old: str, new: str) -> None:
        assert fingerprint(_made(self.BASE)) != fingerprint(_made(self.BASE.replace(old, new)))

    def test_closures_modules_and_classes_count(self) -> None:
        def closed_over(value: Any) -> Any:
            return lambda x: x + value

        assert fingerprint(closed_over(1)) == fingerprint(closed_over(1))
        assert fingerprint(closed_over(1)) != fingerprint(closed_over(2))
        source = "def kernel(x):\n    return tools.step(x)\n"
        found = []
        for text in ("return x", "return -x"):
            tools = types.ModuleType("somebodys_tools")
            exec(f"def step(x):\n    {text}\n", vars(tools))
            found.append(fingerprint(_made(source, tools=tools)))
        assert found[0] != found[1]
        source = "class Tile:\n    size = 1\n    def of(self):\n        return self.size\n"
        source += "def kernel(x):\n    return Tile().of()\n"
        assert fingerprint(_made(source)) != fingerprint(_made(source.replace("size = 1", "size = 2")))
        assert fingerprint(_made(source)) != fingerprint(_made(source.replace("self.size", "-self.size")))

    def test_functions_that_call_each_other_end(self) -> None:
        source = "def other(x):\n    return kernel(x)\ndef kernel(x):\n    return other(x)\n"
        assert fingerprint(_made(source)) == fingerprint(_made(source))
