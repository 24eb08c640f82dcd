"""``torch.compiler``: every API of the reference table, by its effect on a function compiled for the device."""

import bisect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from torch_neuronx_compile import loaded as loaded_programs
from torch_neuronx_compile.errors import NestedRegionError
from torch_neuronx_compile.metrics import NeuronCompilationMetrics, get_dynamo_metrics

GuardFilter = Callable[[Any], list[bool]]


def device(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float32, device="neuron")


def neuron(function: Any, **arguments: Any) -> Any:
    return torch.compile(function, backend="neuron", fullgraph=True, **arguments)


def graphs() -> int:
    """Return how many graphs were compiled since the test began."""
    return len(get_dynamo_metrics())


@pytest.fixture
def default_backend() -> Iterator[None]:
    before = torch.compiler.get_default_backend()
    yield
    torch.compiler.set_default_backend(before)


def test_compile() -> None:
    double = torch.compiler.compile(lambda x: x * 2, backend="neuron", fullgraph=True)
    assert double(device(1, 2)).tolist() == [2, 4]
    assert graphs() == 1


def test_reset() -> None:
    double = neuron(lambda x: x * 2)
    double(device(1))
    torch.compiler.reset()
    assert double(device(3)).tolist() == [6]
    assert graphs() == 2  # the frame was traced and compiled again


def _opaque(x: Tensor) -> Tensor:
    _calls.append(torch.compiler.is_dynamo_compiling())
    return x + 1


_calls: list[bool] = []


def test_allow_in_graph() -> None:
    _calls.clear()
    torch.compiler.allow_in_graph(_opaque)
    try:
        assert neuron(lambda x: _opaque(x) * 2)(device(1)).tolist() == [4]
        assert graphs() == 1  # one graph, with what Dynamo did not look into
        assert not any(_calls[1:])
    finally:
        torch._dynamo.disallow_in_graph(_opaque)


def test_substitute_in_graph() -> None:
    def count(x: Tensor, n: int) -> Tensor:
        return x + bisect.bisect_left([1, 2, 4, 8], n)

    with pytest.raises(torch._dynamo.exc.Unsupported), pytest.warns(UserWarning, match="bisect_left"):
        neuron(count)(device(1), 3)

    @torch.compiler.substitute_in_graph(bisect.bisect_left, skip_signature_check=True)
    def bisect_left(values: list[int], value: int) -> int:
        return sum(other < value for other in values)

    torch._dynamo.reset()
    assert neuron(count)(device(1), 3).tolist() == [3]
    assert graphs() == 1


def test_assume_constant_result() -> None:
    calls = []

    @torch.compiler.assume_constant_result
    def setting() -> int:
        calls.append(1)
        return len(calls)

    function = neuron(lambda x: x * setting())
    assert [function(device(10)).tolist() for _ in range(3)] == [[10], [10], [10]]
    assert calls == [1]


def test_list_backends() -> None:
    assert "neuron" in torch.compiler.list_backends()


def test_disable() -> None:
    seen = []

    @torch.compiler.disable
    def outside(x: Tensor) -> Tensor:
        seen.append(torch.compiler.is_compiling())
        return x + 1

    function = torch.compile(lambda x: outside(x * 2) * 3, backend="neuron")
    assert function(device(1)).tolist() == [9]
    assert seen == [False]
    assert graphs() == 2  # one before and one after


@pytest.mark.usefixtures("default_backend")
def test_set_default_backend() -> None:
    torch.compiler.set_default_backend("neuron")
    assert torch.compile(lambda x: x * 2)(device(2)).tolist() == [4]
    assert graphs() == 1
    torch.compiler.set_default_backend("eager")
    assert torch.compile(lambda x: x * 3)(device(2)).tolist() == [6]
    assert graphs() == 1


@pytest.mark.usefixtures("default_backend")
def test_get_default_backend() -> None:
    torch.compiler.set_default_backend("neuron")
    assert torch.compiler.get_default_backend() == "neuron"


def test_set_stance() -> None:
    function = neuron(lambda x: x * 2)
    with torch.compiler.set_stance("force_eager"):
        assert function(device(2)).tolist() == [4]
    assert graphs() == 0
    function(device(2))
    assert graphs() == 1
    with torch.compiler.set_stance("eager_on_recompile"):
        assert function(device(2, 3)).tolist() == [4, 6]
    assert graphs() == 1
    with (
        torch.compiler.set_stance("fail_on_recompile"),
        pytest.raises(RuntimeError, match="fail_on_recompile"),
    ):
        function(device(2, 3))
    with torch.compiler.set_stance("default", force_backend="eager"):
        assert torch.compile(lambda x: x * 5, backend="neuron")(device(2)).tolist() == [10]
    assert graphs() == 1


def test_set_stance_eager_then_compile() -> None:
    function = neuron(lambda x: x * 2)
    with torch.compiler.set_stance("eager_then_compile"):
        assert function(device(1)).tolist() == [2]
        assert graphs() == 0
        assert function(device(1)).tolist() == [2]
        assert graphs() == 1


def test_set_enable_guard_collectives() -> None:
    function = neuron(lambda x: x * 2)
    before = torch.compiler.set_enable_guard_collectives(True)
    try:  # without a process group there is nobody to agree with: guards work as before
        assert function(device(1)).tolist() == [2]
        assert function(device(1, 2)).tolist() == [2, 4]
        assert torch.compiler.set_enable_guard_collectives(True) is True
    finally:
        torch.compiler.set_enable_guard_collectives(before)
    assert graphs() == 2


# torch's own module behind this API uses a part of torch that torch calls deprecated.
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
def test_cudagraph_mark_step_begin() -> None:
    function = neuron(lambda x: x * 2)
    results = []
    for step in range(3):
        torch.compiler.cudagraph_mark_step_begin()
        results.append(function(device(float(step))))
    assert [result.tolist() for result in results] == [[0], [2], [4]]  # earlier results stay what they were
    assert graphs() == 1


def test_is_compiling() -> None:
    function = neuron(lambda x: x * 2 if torch.compiler.is_compiling() else x * 3)
    assert function(device(1)).tolist() == [2]
    assert not torch.compiler.is_compiling()


def test_is_dynamo_compiling() -> None:
    function = neuron(lambda x: x * 2 if torch.compiler.is_dynamo_compiling() else x * 3)
    assert function(device(1)).tolist() == [2]
    assert not torch.compiler.is_dynamo_compiling()


def test_is_exporting() -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 2 if torch.compiler.is_exporting() else x * 3

    assert neuron(Model())(device(1)).tolist() == [3]
    exported = torch.export.export(Model(), (device(1),)).module()
    assert neuron(exported)(device(1)).tolist() == [2]


class Scaled(nn.Module):
    """A module that reads an attribute of its own, one of a module it holds, and a global."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = 2
        self.drop = nn.Dropout(0.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(x) * self.scale * FACTOR


FACTOR = 1


@pytest.fixture
def factor() -> Iterator[None]:
    yield
    globals()["FACTOR"] = 1


@pytest.mark.usefixtures("factor")
@pytest.mark.parametrize(
    ("keep", "own_attribute", "held_attribute", "global_value", "shape"),
    [
        (None, True, True, True, True),
        (torch.compiler.keep_portable_guards_unsafe, False, False, False, True),
        (torch.compiler.skip_guard_on_inbuilt_nn_modules_unsafe, True, False, True, True),
        (torch.compiler.skip_guard_on_all_nn_modules_unsafe, False, False, True, True),
        (torch.compiler.keep_tensor_guards_unsafe, False, False, False, True),
        (torch.compiler.skip_guard_on_globals_unsafe, True, True, False, True),
        (torch.compiler.skip_all_guards_unsafe, False, False, False, False),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_guard_filters(
    keep: GuardFilter | None, own_attribute: bool, held_attribute: bool, global_value: bool, shape: bool
) -> None:
    """Each filter drops just the guards that it names: what it drops no longer makes the function compile again."""

    def recompiles(change: Callable[[Scaled], object], again: Tensor) -> bool:
        torch._dynamo.reset()
        globals()["FACTOR"] = 1
        model = Scaled()
        options = None if keep is None else {"guard_filter_fn": keep}
        function = neuron(model, options=options)
        assert function(device(1, 2)).tolist() == [2, 4]
        before = graphs()
        change(model)
        function(again)
        return graphs() > before

    def change_global(_: Scaled) -> None:
        globals()["FACTOR"] = 7

    same = device(1, 2)
    assert recompiles(lambda model: setattr(model, "scale", 5), same) is own_attribute
    assert recompiles(lambda model: setattr(model.drop, "p", 0.5), same) is held_attribute
    assert recompiles(change_global, same) is global_value
    if shape:  # without this guard the program would read past a smaller tensor's end
        assert recompiles(lambda model: None, device(1, 2, 3))


def test_nested_compile_region() -> None:
    @torch.compiler.nested_compile_region
    def layer(x: Tensor) -> Tensor:
        return (x * 2).sin()

    def stack(x: Tensor) -> Tensor:
        return layer(layer(x)) + 1

    with pytest.raises(NestedRegionError, match=r"cannot call another one. Remove the mark"):
        torch.compile(stack, backend="neuron")(device(1))


def test_load_cache_artifacts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _compile_saved()
    saved = torch.compiler.save_cache_artifacts()
    assert saved is not None
    _use_empty_caches(monkeypatch, tmp_path)
    torch.compiler.load_cache_artifacts(saved[0])
    assert _compile_saved().torch_neuronx_compile_us == 0
    _use_empty_caches(monkeypatch, tmp_path / "again")  # and without them it is compiled anew
    assert _compile_saved().torch_neuronx_compile_us > 0


def test_save_cache_artifacts() -> None:
    _compile_saved()
    saved = torch.compiler.save_cache_artifacts()
    assert saved is not None
    artifacts, info = saved
    assert artifacts
    assert info.aot_autograd_artifacts


def test_load_compiled_function(tmp_path: Path) -> None:
    compiled = neuron(_saved).aot_compile(((device(1, 2),), {}))
    compiled.save_compiled_function(str(tmp_path / "function"))
    torch.compiler.reset()
    before = _lowerings()
    with (tmp_path / "function").open("rb") as file:
        loaded = torch.compiler.load_compiled_function(file)
    assert loaded(device(1, 2)).tolist() == [3, 5]
    assert _lowerings() == before


def _lowerings() -> int:
    return sum(record.torch_neuronx_lower_us > 0 for record in get_dynamo_metrics())


def _saved(x: Tensor) -> Tensor:
    return x * 2 + 1


def _compile_saved() -> NeuronCompilationMetrics:
    assert neuron(_saved)(device(1, 2)).tolist() == [3, 5]
    return get_dynamo_metrics()[-1]


def _use_empty_caches(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Forget what was compiled, in this process and on disk."""
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TORCH_NEURONX_NEFF_CACHE_DIR", "TORCH_NEURONX_HLO_CACHE_DIR"):
        monkeypatch.setenv(name, str(folder / name))
    torch.compiler.reset()
    loaded_programs._loaded.clear()
    loaded_programs._neffs.clear()


def test_wrap_numpy() -> None:
    def norm(x: Any) -> Any:
        return np.sum(x * x)

    x = torch.tensor([1.0, 2.0, 3.0], device="neuron", requires_grad=True)
    result = neuron(torch.compiler.wrap_numpy(norm))(x)
    result.backward()
    assert result.device.type == "neuron"
    assert result.item() == 14
    assert x.grad is not None
    assert x.grad.tolist() == [2, 4, 6]
    assert graphs() == 2
