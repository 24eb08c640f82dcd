"""Graph breaks: every row of the reference table, in every form of the call, and what must stay as it is."""

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.exc import Unsupported
from torch.nn import functional as F

from torch_neuronx import events, plugins
from torch_neuronx.hookspecs import hookimpl
from torch_neuronx_compile.capture import breaks
from torch_neuronx_compile.lowering import lower
from torch_neuronx_compile.metrics import get_dynamo_metrics
from torch_neuronx_compile.support import learned, table
from torch_neuronx_compile.support.table import Support

from ..refusals import refuse, use_table

LIMIT = 16_384
TYPE = "Op not supported by the Neuron backend"


def _line(length: int) -> Tensor:
    return torch.linspace(-3, 3, length)


def _sorted_into(x: Tensor, values: Tensor, indices: Tensor) -> Tensor:
    torch.sort(x.sin(), out=(values, indices))
    return values.cos()


def _largest_into(x: Tensor, values: Tensor, indices: Tensor) -> Tensor:
    torch.topk(x.sin(), values.shape[0], out=(values, indices))
    return values.cos()


def _inverse_into(x: Tensor, out: Tensor) -> Tensor:
    torch.erfinv(x.sin() / 2, out=out)
    return out.cos()


def _into(length: int) -> tuple[Tensor, Tensor]:
    return torch.empty(length), torch.empty(length, dtype=torch.int64)


GROUPS = (torch.linspace(0, 1, 8 * 16).reshape(8, 16), torch.linspace(0, 1, 2 * 16 * 32).reshape(2, 16, 32))
GROUPED = (*(group.bfloat16() for group in GROUPS), torch.tensor([4, 8], dtype=torch.int32))
OVER = _line(LIMIT + 1)

BREAKS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...], str, str]] = {
    "torch.sort": (lambda x: torch.sort(x.sin())[0].cos(), (OVER,), "torch.sort", "16385 elements"),
    "sort, first dimension": (lambda x: torch.sort(x.sin(), 0)[0].cos(), (OVER[:, None],), "torch.sort", "16385"),
    "sort, stable": (lambda x: torch.sort(x.sin(), stable=True)[0].cos(), (OVER,), "torch.sort", "16385"),
    "sort, method": (lambda x: x.sin().sort(-1)[0].cos() + x, (OVER,), "Tensor.sort", "16385"),
    "sort, out=": (_sorted_into, (OVER, *_into(LIMIT + 1)), "torch.sort", "16385"),
    "torch.argsort": (lambda x: torch.argsort(x.sin()) + 1, (OVER,), "torch.argsort", "16385"),
    "argsort, method": (lambda x: x.sin().argsort(0, descending=True) + 1, (OVER,), "Tensor.argsort", "16385"),
    "torch.msort": (lambda x: torch.msort(x.sin()).cos(), (OVER,), "torch.msort", "16385"),
    "torch.quantile": (lambda x: torch.quantile(x.sin(), 0.5).cos(), (OVER,), "torch.quantile", "16385"),
    "torch.topk": (lambda x: torch.topk(x.sin(), LIMIT)[0].cos(), (OVER,), "torch.topk", "k is 16384"),
    "topk, method": (lambda x: x.sin().topk(LIMIT)[0].cos() + x[1:], (OVER,), "Tensor.topk", "k is 16384"),
    "topk, out=": (_largest_into, (OVER, *_into(LIMIT)), "torch.topk", "k is 16384"),
    "grouped_mm": (lambda a, b, o: F.grouped_mm(a + 1, b, offs=o) * 2, GROUPED, "grouped_mm", "no grouped matrix"),
    "_grouped_mm": (
        lambda a, b, o: torch._grouped_mm(a + 1, b, offs=o) * 2,
        GROUPED,
        "_grouped_mm",
        "no grouped matrix",
    ),
    "no lowering": (lambda x: torch.erfinv(x.sin() / 2).cos(), (_line(5),), "erfinv", "has no lowering"),
    "no lowering, method": (lambda x: x.sin().div(2).erfinv().cos(), (_line(5),), "Tensor.erfinv", "has no lowering"),
    "no lowering, out=": (_inverse_into, (_line(5), torch.empty(5)), "torch.erfinv", "has no lowering"),
    "nonzero": (lambda x: x.relu().nonzero() * 2, (_line(5),), "Tensor.nonzero", "depends on the values"),
    "masked_select": (lambda x: torch.masked_select(x.sin(), x > 0).cos(), (_line(5),), "masked_select", "depends on"),
    "unique": (lambda x: x.round().unique().cos(), (_line(5),), "Tensor.unique", "depends on the values"),
    "boolean mask": (lambda x: x.sin()[x > 0].cos(), (_line(5),), "Tensor.__getitem__", "depends on the values"),
}


def moved(tensors: tuple[Tensor, ...]) -> list[Tensor]:
    return [tensor.clone().to("neuron") for tensor in tensors]


@pytest.fixture
def table_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    use_table(monkeypatch, {"aten::erfinv": Support("it has no lowering", None)})


@pytest.mark.usefixtures("table_of_rows")
@pytest.mark.parametrize("row", BREAKS)
def test_with_fullgraph_the_call_is_an_error(row: str) -> None:
    function, inputs, op, reason = BREAKS[row]
    with pytest.raises(Unsupported, match=f"{TYPE}\n.*{re.escape(op)}.*{reason}") as caught:
        torch.compile(function, backend="neuron", fullgraph=True)(*moved(inputs))
    assert caught.value.gb_type == TYPE


@pytest.mark.usefixtures("table_of_rows")
@pytest.mark.parametrize("row", BREAKS)
def test_without_it_the_call_runs_in_eager_mode_and_the_rest_is_compiled(row: str) -> None:
    function, inputs, _, _ = BREAKS[row]
    expected = function(*(tensor.clone() for tensor in inputs))
    result = torch.compile(function, backend="neuron")(*moved(inputs))
    torch.testing.assert_close(result.cpu(), expected, rtol=2e-2, atol=2e-5)
    assert len(get_dynamo_metrics()) == 2, "one graph before the call, one after it"


@pytest.mark.parametrize(
    "function",
    [lambda x: torch.sort(x)[0], lambda x: x.argsort(), lambda x: torch.topk(x, LIMIT - 1)[0]],
    ids=["sort", "argsort", "topk"],
)
def test_at_the_limit_the_call_is_part_of_the_graph(function: Callable[[Tensor], Tensor]) -> None:
    x = torch.linspace(1, 0, LIMIT)
    result = torch.compile(function, backend="neuron", fullgraph=True)(x.to("neuron"))
    assert torch.equal(result.cpu(), function(x))


def test_only_the_sorted_dimension_counts() -> None:
    x = torch.stack((OVER, -OVER))
    result = torch.compile(lambda x: x.sort(0)[0], backend="neuron", fullgraph=True)(x.to("neuron"))
    assert torch.equal(result.cpu(), x.sort(0)[0])


def test_a_custom_operator_without_a_lowering_breaks() -> None:
    library = torch.library.Library("graph_breaks", "FRAGMENT")
    library.define("double(Tensor x) -> Tensor")
    library.impl("double", lambda x: x * 2, "CompositeExplicitAutograd")
    torch.library.register_fake("graph_breaks::double", torch.empty_like, lib=library)

    def function(x: Tensor) -> Tensor:
        return torch.ops.graph_breaks.double(x.sin()).cos()

    x = _line(5)
    with pytest.raises(Unsupported, match=r"graph_breaks.*has no lowering"):
        torch.compile(function, backend="neuron", fullgraph=True)(x.to("neuron"))
    torch._dynamo.reset()
    result = torch.compile(function, backend="neuron")(x.to("neuron"))
    torch.testing.assert_close(result.cpu(), (x.sin() * 2).cos())
    assert len(get_dynamo_metrics()) == 3, "before the call, after it, and the operator's own body, which is Python"


# Other backends -------------------------------------------------------------------------------------------------------


# Inductor has no code generator for the device, and its first import warns of a part of torch.jit.
@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")
@pytest.mark.parametrize(("other", "device"), [("eager", "neuron"), ("aot_eager", "neuron"), ("aot_eager", "cpu")])
def test_the_call_breaks_after_another_backend_has_traced_it(other: str, device: str) -> None:
    function, inputs, _, _ = BREAKS["torch.sort"]
    tensors = [tensor.to(device) for tensor in inputs]
    for _ in range(2):
        torch._dynamo.reset()
        torch.compile(function, backend=other, fullgraph=True)(*tensors)
        torch._dynamo.reset()
        with pytest.raises(Unsupported, match=TYPE):
            torch.compile(function, backend="neuron", fullgraph=True)(*tensors)


@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")
def test_other_backends_compile_the_call() -> None:
    function, inputs, _, _ = BREAKS["torch.sort"]
    with pytest.raises(Unsupported, match=TYPE):
        torch.compile(function, backend="neuron", fullgraph=True)(*moved(inputs))
    for other in ("eager", "aot_eager", "inductor"):
        torch._dynamo.reset()
        result = torch.compile(function, backend=other, fullgraph=True)(*inputs)
        torch.testing.assert_close(result, function(*inputs))


# What is told ---------------------------------------------------------------------------------------------------------


class Observer:
    def __init__(self) -> None:
        self.seen: list[events.GraphBroke] = []

    @hookimpl
    def torch_neuronx_observe(self, event: events.Event) -> None:
        if isinstance(event, events.GraphBroke):
            self.seen.append(event)


@pytest.fixture
def observer() -> Iterator[Observer]:
    plugin = Observer()
    breaks._told.clear()
    plugins.manager().register(plugin, "graph-breaks")
    yield plugin
    plugins.manager().unregister("graph-breaks")


def test_observers_are_told_once_with_the_line(observer: Observer) -> None:
    def helper(x: Tensor) -> Tensor:
        return torch.sort(x)[0]

    def function(x: Tensor) -> Tensor:
        return helper(x.sin()).cos()

    line = helper.__code__.co_firstlineno + 1
    compiled = torch.compile(function, backend="neuron")
    for _ in range(2):
        compiled(OVER.to("neuron"))
    assert observer.seen == [
        events.GraphBroke(
            "torch.sort",
            f"the sorted dimension has {LIMIT + 1} elements, and the limit is {LIMIT}",
            f"{__file__}:{line}",
        )
    ]


# What the table does not know -----------------------------------------------------------------------------------------


@pytest.fixture
def empty_table(monkeypatch: pytest.MonkeyPatch) -> None:
    use_table(monkeypatch, {})
    refuse(monkeypatch, "aten.erfinv.default")


@pytest.fixture
def lowered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the names of the units that are lowered."""
    names: list[str] = []
    original = lower.lower

    def counted(unit: Any, *rest: Any) -> Any:
        names.append(unit.name)
        return original(unit, *rest)

    monkeypatch.setattr("torch_neuronx_compile.backend.lower", counted)
    return names


def without_a_lowering(x: Tensor) -> Tensor:
    return torch.erfinv(x.sin() / 2).cos()


def cache_file() -> Path:
    [path] = Path(os.environ["TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR"]).glob("lowering-*.json")
    return path


def the_same_call(x: Tensor) -> Tensor:
    return torch.erfinv(x.cos() / 3).exp()


@pytest.mark.usefixtures("empty_table")
def test_a_call_that_turns_out_not_to_lower_breaks_there_from_then_on(lowered: list[str]) -> None:
    x = _line(5)
    tried = []
    for function in (without_a_lowering, the_same_call):
        lowered.clear()
        torch.testing.assert_close(torch.compile(function, backend="neuron")(x.to("neuron")).cpu(), function(x))
        tried.append(len(lowered))
    assert tried == [3, 2], "the first compilation tries the whole, the second knows"
    torch._dynamo.reset()
    with pytest.raises(Unsupported, match=f"{TYPE}\n.*erfinv.*has no lowering"):
        torch.compile(the_same_call, backend="neuron", fullgraph=True)(x.to("neuron"))


@pytest.mark.usefixtures("empty_table")
def test_with_fullgraph_the_first_attempt_is_the_same_error() -> None:
    with pytest.raises(Unsupported, match=f"{TYPE}\n.*erfinv.*has no lowering"):
        torch.compile(without_a_lowering, backend="neuron", fullgraph=True)(_line(5).to("neuron"))


@pytest.mark.usefixtures("empty_table")
def test_another_process_breaks_without_trying(lowered: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    x = _line(5).to("neuron")
    torch.compile(without_a_lowering, backend="neuron")(x)
    assert cache_file().stat().st_mode & 0o777 == 0o600
    monkeypatch.setattr(learned, "_files", {})  # as another process starts
    lowered.clear()
    torch.compile(the_same_call, backend="neuron")(x)
    assert len(lowered) == 2


@pytest.mark.usefixtures("empty_table")
@pytest.mark.parametrize("damage", ["{", '{"calls": {"a": 1}}', "[]", '{"calls": []}'])
def test_a_damaged_file_is_ignored_with_a_warning(damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    learned.learn("torch.f(float32[1])", "it has no lowering")
    cache_file().write_text(damage)
    monkeypatch.setattr(learned, "_files", {})
    with pytest.warns(UserWarning, match=r"lowering-.*is ignored"):
        assert learned.reason_for("torch.f(float32[1])") is None
    learned.learn("torch.g(float32[1])", "it has no lowering")
    assert json.loads(cache_file().read_text()) == {"calls": {"torch.g(float32[1])": "it has no lowering"}}


def test_a_file_that_others_may_write_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    learned.learn("torch.f(float32[1])", "it has no lowering")
    cache_file().chmod(0o666)
    monkeypatch.setattr(learned, "_files", {})
    with pytest.warns(UserWarning, match="somebody else may write to it"):
        assert learned.reason_for("torch.f(float32[1])") is None


# Gradients ------------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # Dynamo's look at what the eager call gave
def test_a_call_breaks_for_a_gradient_that_cannot_be_lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    use_table(monkeypatch, {"aten::tanh": Support(None, "that has no lowering")})

    def function(x: Tensor) -> Tensor:
        return x.sin().tanh().cos()

    x = _line(5).to("neuron").requires_grad_()
    with pytest.raises(Unsupported, match=r"Tensor\.tanh.*its gradient is needed, and that has no lowering"):
        torch.compile(function, backend="neuron", fullgraph=True)(x)
    for plain in (x.detach(), x):
        torch._dynamo.reset()
        with torch.no_grad():
            torch.compile(function, backend="neuron", fullgraph=True)(plain)
    torch._dynamo.reset()
    torch.compile(function, backend="neuron")(x).sum().backward()
    host = _line(5).requires_grad_()
    function(host).sum().backward()
    torch.testing.assert_close(x.grad.cpu(), host.grad)


def test_steps_of_fake_tensors_break_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    use_table(monkeypatch, {"aten::empty_strided": Support("it has no lowering", None)})
    function = torch.compile(lambda x: x.sum(0), backend="neuron", fullgraph=True)
    for rows in (3, 4):  # at the second shape sizes are symbols, and fake tensors compute sums step by step
        assert function(torch.ones(rows, 2, device="neuron")).tolist() == [rows, rows]


def test_the_shipped_table_is_read_where_its_versions_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    document = table.read()
    assert document["ops"]["aten::add.Tensor"] == [None, None]
    made = document["metadata"]
    others = ({"torch": "0.1"}, {"torch-mlir": "20000101"}, {"torch": made["torch"].partition("+")[0] + "+other"})
    try:
        for changed, rows in zip(({}, *others), (len(document["ops"]), 0, 0, len(document["ops"])), strict=True):
            versioned = {**document, "metadata": {**made, **changed}}
            monkeypatch.setattr(table, "read", lambda versioned=versioned: versioned)
            table.shipped.cache_clear()
            assert len(table.shipped()) == rows
    finally:
        table.shipped.cache_clear()


def test_the_shipped_table_was_made_with_these_sources() -> None:
    assert table.read()["metadata"]["sources"] == table.sources(), (
        "passes, decompositions or the lowering have changed since the table was made: run "
        "`python -m tools.op_statuses record` and `python -m tools.lowering_support`"
    )
