"""What an explanation says of frames, graphs, breaks, fallbacks, recompiles and caches."""

import json
import runpy
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

import torch_neuronx
from torch_neuronx import plugins
from torch_neuronx.events import GraphBroke, GraphFellBack, OpFellBack
from torch_neuronx_compile.explain.recorder import recording
from torch_neuronx_compile.explain.report import Explanation, Stage

HERE = Path(__file__).name


def ones(*shape: int) -> Tensor:
    return torch.ones(*shape, device="neuron")


def broken(x: Tensor) -> Tensor:
    y = x * 2 + 1
    print("in between")
    return (y * 3).sum()


def explain(*arguments: object) -> Explanation:
    explanation = torch_neuronx.explain(*arguments)
    assert isinstance(explanation, Explanation)
    return explanation


@cache
def of_broken() -> Explanation:
    return explain(broken, ones(3))


class TestOneCall:
    @pytest.fixture
    def explanation(self) -> Explanation:
        return of_broken()

    def test_frames(self, explanation: Explanation) -> None:
        assert [frame.id for frame in explanation.frames] == ["0/0", "1/0"]
        assert explanation.frames[0].function == "broken"
        assert HERE in explanation.frames[0].location
        assert [frame.breaks for frame in explanation.frames] == [1, 0]
        assert not explanation.recompiles

    def test_graphs(self, explanation: Explanation) -> None:
        first, second = explanation.graphs
        assert (first.kind, first.frame, first.runs) == ("inference", "0/0", 1)
        assert (second.frame, second.operators["aten.mul.Tensor"]) == ("1/0", 1)
        assert first.operators == {"aten.mul.Tensor": 1, "aten.add.Tensor": 1}
        assert first.key != second.key
        assert f"{HERE}" in first.code
        assert "f32[3]" in first.code

    def test_the_break_has_a_reason_and_the_users_line(self, explanation: Explanation) -> None:
        (found,) = explanation.breaks
        line = broken.__code__.co_firstlineno + 2
        assert found.location.endswith(f"{HERE}:{line}")
        assert found.reason == "Failed to trace builtin operator"
        assert "print" in found.explanation
        assert found.hints
        assert 'print("in between")' in found.traceback

    def test_seconds(self, explanation: Explanation) -> None:
        assert list(explanation.seconds) == list(Stage)
        assert all(seconds > 0 for seconds in explanation.seconds.values())
        for stage in (Stage.PASSES, Stage.LOWERING, Stage.COMPILE, Stage.RUN):
            assert explanation.seconds[stage] == sum(graph.seconds[stage] for graph in explanation.graphs)

    def test_text(self, explanation: Explanation) -> None:
        text = str(explanation)
        assert text.startswith("broken: 2 frames, 2 graphs, 1 break, 0 recompiles, 0 fallbacks")
        for part in ("Failed to trace builtin operator", "Hint: ", "lowering", explanation.graphs[0].key, "compiled"):
            assert part in text

    def test_json(self, explanation: Explanation) -> None:
        read = json.loads(explanation.json())
        assert [graph["name"] for graph in read["graphs"]] == [graph.name for graph in explanation.graphs]
        assert read["seconds"].keys() == {stage.value for stage in Stage}
        assert read["environment"]["torch"] == torch.__version__


def test_the_caches_are_named() -> None:
    def function(x: Tensor) -> Tensor:
        return x * 6.25 - 7

    first, again = explain(function, ones(3)), explain(function, ones(3))
    assert first.graphs[0].outcome == "compiled"
    assert ("memory", False) in [(lookup.layer, lookup.hit) for lookup in first.graphs[0].lookups]
    assert again.graphs[0].outcome == "found in memory"
    assert again.graphs[0].seconds[Stage.COMPILE] == 0
    assert first.graphs[0].key == again.graphs[0].key


def test_a_graph_that_pytorchs_cache_had_is_named(tmp_path: Path) -> None:
    function = torch.compile(lambda x: (x * 3.375).sum(), backend="neuron")
    found = []
    for _ in range(2):
        torch.compiler.reset()
        with recording() as recorder:
            function(ones(3).requires_grad_()).backward()
        found.append(recorder.explanation("a step"))
    first, again = found
    for one, other in zip(first.graphs, again.graphs, strict=True):
        assert (one.kind, one.frame, one.nodes, one.key) == (other.kind, other.frame, other.nodes, other.key)
        assert ("traced", True) in [(lookup.layer, lookup.hit) for lookup in other.lookups]
        assert other.runs == 1
    assert "not traced" in again.text()
    assert "Not traced" in again.html(tmp_path / "page.html").read_text()
    assert not again.write_reproductions(tmp_path)


@torch.library.custom_op("explain_test::twice", mutates_args=())
def twice(x: Tensor) -> Tensor:
    """Have no lowering."""
    return x * 2


@twice.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def unsupported(x: Tensor) -> Tensor:
    return twice(x + 1) * 3


def test_an_operator_that_cannot_be_compiled_is_a_break_with_its_name() -> None:
    explain(unsupported, ones(3))
    explanation = explain(unsupported, ones(3))
    assert not explanation.error
    assert [graph.outcome for graph in explanation.graphs if "given up" not in graph.outcome] == ["found in memory"] * 2
    (found,) = explanation.breaks
    assert "twice" in found.operator
    assert found.reason == "Op not supported by the Neuron backend"
    assert found.location.endswith(f"{HERE}:{unsupported.__code__.co_firstlineno + 1}")


def test_a_call_that_does_not_compile_is_explained_and_not_raised() -> None:
    explanation = explain(torch.compile(unsupported, backend="neuron", fullgraph=True), ones(3))
    assert "twice" in explanation.error
    assert explanation.frames[0].error
    assert not explanation.frames[0].breaks
    assert "It ended with" in explanation.text()


def test_a_graph_in_eager_mode_is_a_fallback() -> None:
    with recording() as recorder:
        torch.compile(lambda x: x + 1, backend="neuron")(ones(3))
        (graph,) = recorder.explanation("before").graphs
        plugins.notify(GraphFellBack(graph.name, "it was unloaded"))
    (fallback,) = recorder.explanation("after").fallbacks
    assert (fallback.what, fallback.reason) == (graph.name, "it was unloaded")


def test_a_recompile_names_the_guard() -> None:
    with recording() as recorder:
        function = torch.compile(lambda x: x + 1, backend="neuron")
        for extent in (3, 4):
            function(ones(extent))
    (frame,) = recorder.explanation("two calls").recompiles
    assert frame.id == "0/1"
    assert "size mismatch at index 0. expected 3, actual 4" in frame.recompiled


def test_backward_graphs_belong_to_their_frame() -> None:
    with recording() as recorder:
        function = torch.compile(lambda x: (x * x).sum(), backend="neuron")
        function(ones(3).requires_grad_()).backward()
    explanation = recorder.explanation("a step")
    assert [(graph.kind, graph.frame, graph.runs) for graph in explanation.graphs] == [
        ("forward", "0/0", 1),
        ("backward", "0/0", 1),
    ]


def test_what_plugins_tell_is_in() -> None:
    with recording() as recorder:
        plugins.notify(OpFellBack("aten::complex", "no kernel", 2))
        plugins.notify(OpFellBack("aten::complex", "no kernel", 1))
        plugins.notify(GraphBroke("aten::lgamma", "has no lowering", "program.py:3"))
    explanation = recorder.explanation("events")
    (fallback,) = explanation.fallbacks
    assert (fallback.what, fallback.calls) == ("aten::complex", 3)
    (found,) = explanation.breaks
    assert (found.operator, found.location) == ("aten::lgamma", "program.py:3")


def test_nothing_is_observed_afterwards() -> None:
    observed = plugins.manager().observed
    with recording() as recorder:
        pass
    assert plugins.manager().observed == observed
    torch.compile(lambda x: x * 5.5, backend="neuron")(ones(2))
    assert not recorder.explanation("nothing").graphs


def test_reproductions_run_by_themselves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Random operators, constants, other strides and dtypes, scalars among the inputs."""
    constant = torch.arange(4.0, device="neuron")

    def function(x: Tensor, i: Tensor) -> Tensor:
        return torch.nn.functional.dropout(x + constant, 0.5) * i

    with recording() as recorder:
        x = torch.rand(4, 3, device="neuron").t().requires_grad_()
        torch.compile(function, backend="neuron")(x, torch.arange(4, device="neuron")).sum().backward()
    explanation = recorder.explanation("random")
    paths = explanation.write_reproductions(tmp_path)
    assert [path.stem for path in paths] == [graph.name for graph in explanation.graphs]
    assert len(paths) == 2
    for path in paths:
        torch._dynamo.reset()
        runpy.run_path(str(path), run_name="__main__")
        assert "torch.float32, (" in capsys.readouterr().out


def test_reproductions_run_in_a_process_that_compiled_nothing_before(tmp_path: Path) -> None:
    """Their graphs hold this package's own operators, which a process has to register first."""

    def function(x: Tensor) -> Tensor:
        normal = torch.nn.functional.layer_norm(x, (4,))
        return torch.nn.functional.scaled_dot_product_attention(normal, normal, normal).softmax(-1).sort().values

    (path,) = torch_neuronx.explain(function, torch.rand(1, 1, 3, 4, device="neuron")).write_reproductions(tmp_path)
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "(torch.float32, (1, 1, 3, 4))"


def test_a_compiled_module_and_keyword_arguments() -> None:
    module = torch.compile(torch.nn.Linear(2, 2).to("neuron"), backend="neuron")
    explanation = torch_neuronx.explain(module, input=ones(1, 2))
    assert explanation.subject == "Linear"
    assert explanation.graphs[0].kind == "forward"


def test_the_door_is_a_function_however_it_is_reached() -> None:
    import torch_neuronx.explaining

    assert torch_neuronx.explain is torch_neuronx.explaining.explain
    assert "explain" in dir(torch_neuronx)
