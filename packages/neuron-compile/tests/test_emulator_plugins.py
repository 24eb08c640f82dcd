"""Plugins' custom calls and collectives on the emulator: values, order, memory, and errors without a handler."""

import ctypes
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jaxlib
import pytest
import torch
from torch import Tensor
from torch._dynamo.exc import Unsupported

from torch_neuronx import plugins
from torch_neuronx.compilers import CompileRequest
from torch_neuronx.errors import NEFFCompilationError, NEFFExecutionError
from torch_neuronx.hookspecs import hookimpl
from torch_neuronx.lowerings import Collective, Expansion, Lowering
from torch_neuronx.runtimes.interface import Executable
from torch_neuronx.runtimes.select import select_runtime
from torch_neuronx_compile.worker.canonical import portable
from torch_neuronx_compile.worker.client import worker

from .helpers import compiled

ALL_REDUCE = """
    %0 = "stablehlo.all_reduce"(%x) ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %s = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %s : tensor<f32>
    }) {replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>, use_global_device_ids,
        channel_handle = #stablehlo.channel_handle<handle = 7, type = 1>} : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>"""


@pytest.fixture(scope="module", autouse=True)
def _without_dist() -> Iterator[None]:
    """Take out the plugin that implements collectives, where it is installed."""
    manager = plugins.manager()
    manager.load()
    found = sys.modules.get("torch_neuronx_dist.plugin")
    if found is not None:
        manager.unregister("dist")
    yield
    if found is not None:
        manager.register(found, "dist")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    output = tmp_path_factory.mktemp("toy") / "toy.so"
    headers = Path(jaxlib.__file__).parent / "include"
    command = [*shlex.split(os.environ.get("CXX", "c++")), "-std=c++20", "-shared", "-fPIC", "-O0"]
    source = Path(__file__).with_name("toy_handlers.cpp")
    subprocess.run([*command, "-isystem", str(headers), str(source), "-o", str(output)], check=True)
    return ctypes.CDLL(str(output))


def _capsule(library: ctypes.CDLL, name: str) -> Callable[[], object]:
    make = ctypes.pythonapi.PyCapsule_New
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return lambda: make(ctypes.cast(getattr(library, name), ctypes.c_void_p), None, None)


class Toy:
    def __init__(self, library: ctypes.CDLL) -> None:
        self.noted: list[int] = []
        self._lowerings = [
            Lowering("toy::scale.default", "toy_scale", _capsule(library, "toy_scale"), "1"),
            Lowering("toy::mark.default", "toy_mark", _capsule(library, "toy_mark"), "1", ordered=True),
            Lowering("toy::note.default", "toy_note", lambda: self._note, "1", ordered="in_order"),
            Lowering("toy::increase.default", "toy_increase", _capsule(library, "toy_increase"), "1", mutates=(0,)),
            Lowering(
                "toy::stubbed.default",
                "toy_stubbed",
                _capsule(library, "toy_scale"),
                "1",
                worker_stub="torch_neuronx_compile._stub:stub",
            ),
        ]
        self._collectives = [Collective("all_reduce", "toy_all_reduce", _capsule(library, "toy_all_reduce"), "1")]

    def _note(self, operands: list[Tensor], results: list[Tensor], attributes: dict[str, Any]) -> None:
        self.noted.append(attributes["number"])
        results[0].copy_(operands[0] + attributes["number"])

    @hookimpl
    def torch_neuronx_register_lowerings(self) -> list[Lowering]:
        return self._lowerings

    @hookimpl
    def torch_neuronx_register_collectives(self) -> list[Collective]:
        return self._collectives


@pytest.fixture
def toy(library: ctypes.CDLL) -> Iterator[Toy]:
    plugin = Toy(library)
    plugins.manager().register(plugin, "toy")
    yield plugin
    plugins.manager().unregister("toy")


def _neff(body: str, arguments: str = "%x: tensor<4xf32>", results: str = "tensor<4xf32>") -> bytes:
    program = portable(f"module {{ func.func @main({arguments}) -> ({results}) {{ {body} }} }}")
    compiler = plugins.manager().compilers()["emulator"]
    return compiler.compile(CompileRequest(program=program, graph="toy", target="trn2", lnc=2, options={}))


def _load(body: str, arguments: str = "%x: tensor<4xf32>", results: str = "tensor<4xf32>") -> Executable:
    return select_runtime().load(_neff(body, arguments, results), 0)


def _call(target: str, result: str, operand: str, attributes: str = "") -> str:
    return (
        f"{result} = stablehlo.custom_call @{target}({operand}) {{api_version = 4 : i32, backend_config = "
        f"{{{attributes}}}}} : (tensor<4xf32>) -> tensor<4xf32>\n"
    )


def test_an_operator_with_a_lowering_runs_its_handler(toy: Toy) -> None:
    with torch.library._scoped_library("toy", "DEF") as definitions:
        definitions.define("scale(Tensor x, float factor) -> Tensor")
        definitions.impl("scale", lambda x, factor: x * 0, "CompositeExplicitAutograd")
        torch.library.register_fake("toy::scale", lambda x, factor: torch.empty_like(x), lib=definitions)

        def function(x: Tensor) -> Tensor:
            return torch.ops.toy.scale((x + 1).t(), 3.0)

        x = torch.arange(6.0).view(2, 3)
        assert torch.equal(compiled(function)(x.to("neuron")).cpu(), (x + 1).t() * 3)


def test_a_stub_of_its_own_serves_in_the_worker(toy: Toy) -> None:
    run = _load(_call("toy_stubbed", "%0", "%x", "factor = 2.0 : f64") + "return %0 : tensor<4xf32>")
    assert run([torch.arange(4.0, device="neuron")])[0].tolist() == [0, 2, 4, 6]


def test_an_attribute_says_which_calls_keep_the_order(toy: Toy) -> None:
    def call(number: int, operand: str, in_order: bool) -> str:
        attributes = f"in_order = {str(in_order).lower()}, number = {number} : i64"
        return _call("toy_note", f"%{number}", operand, attributes)

    body = "".join(call(i, "%x", True) for i in range(6)) + call(6, "%x", False) + call(7, "%6", False)
    results = ", ".join(f"%{i}" for i in range(8))
    types = ", ".join(["tensor<4xf32>"] * 8)
    run = _load(f"{body} return {results} : {types}", results=types)
    for _ in range(20):
        toy.noted.clear()
        values = [float(result[0]) for result in run([torch.zeros(4, device="neuron")])]
        assert values == [0, 1, 2, 3, 4, 5, 6, 13]
        assert [number for number in toy.noted if number < 6] == list(range(6))
        assert sorted(toy.noted) == list(range(8))


def test_an_ordered_call_in_a_branch_is_refused_and_another_is_not(toy: Toy) -> None:
    def looped(in_order: str) -> str:
        return f"""
            %0 = stablehlo.constant dense<true> : tensor<i1>
            %1 = "stablehlo.if"(%0) ({{
                {_call("toy_note", "%2", "%x", f"in_order = {in_order}, number = 1 : i64")}
                stablehlo.return %2 : tensor<4xf32>
            }}, {{
                stablehlo.return %x : tensor<4xf32>
            }}) : (tensor<i1>) -> tensor<4xf32>
            return %1 : tensor<4xf32>"""

    assert _load(looped("false"))([torch.zeros(4, device="neuron")])[0].tolist() == [1, 1, 1, 1]
    with pytest.raises(NEFFCompilationError, match="keeps the order of the program, and is inside a loop or a branch"):
        _neff(looped("true"))


def test_ordered_calls_keep_the_order_of_the_program_and_run_one_at_a_time(toy: Toy, library: ctypes.CDLL) -> None:
    body = "".join(_call("toy_mark", f"%{i}", "%x", f"number = {i} : i64") for i in range(8))
    results = ", ".join(f"%{i}" for i in range(8))
    body += f"return {results} : {', '.join(['tensor<4xf32>'] * 8)}"
    run = _load(body, results=", ".join(["tensor<4xf32>"] * 8))
    for _ in range(5):
        run([torch.ones(4, device="neuron")])
    marks = (ctypes.c_int64 * 64)()
    count = library.toy_marks(marks, 64)
    assert list(marks[:count]) == list(range(8)) * 5


def test_an_ordered_call_that_nobody_reads_still_runs(toy: Toy, library: ctypes.CDLL) -> None:
    run = _load(_call("toy_mark", "%0", "%x", "number = 5 : i64") + "return %x : tensor<4xf32>")
    run([torch.ones(4, device="neuron")])
    marks = (ctypes.c_int64 * 4)()
    assert list(marks[: library.toy_marks(marks, 4)]) == [5]


def test_a_call_that_writes_to_its_operand_leaves_the_other_readers_theirs(toy: Toy) -> None:
    body = """
        %before = stablehlo.multiply %x, %x : tensor<4xf32>
        %changed = stablehlo.custom_call @toy_increase(%before) {api_version = 4 : i32, backend_config = {}}
          : (tensor<4xf32>) -> tensor<4xf32>
        %input = stablehlo.custom_call @toy_increase(%x) {api_version = 4 : i32, backend_config = {}}
          : (tensor<4xf32>) -> tensor<4xf32>
        %after = stablehlo.subtract %before, %x : tensor<4xf32>
        return %changed, %input, %after : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>"""
    run = _load(body, results="tensor<4xf32>, tensor<4xf32>, tensor<4xf32>")
    x = torch.arange(4.0, device="neuron")
    changed, given, after = run([x])
    assert changed.tolist() == [1, 2, 5, 10]
    assert given.tolist() == [1, 2, 3, 4]
    assert after.tolist() == [0, 0, 2, 6]
    assert x.tolist() == [0, 1, 2, 3]


def test_a_collective_runs_its_plugins_handler(toy: Toy) -> None:
    assert _load(ALL_REDUCE)([torch.arange(4.0, device="neuron")])[0].tolist() == [0, 2, 4, 6]


@pytest.mark.parametrize("operation", ["all_reduce", "partition_id"])
def test_a_collective_without_an_implementation_is_an_error(operation: str) -> None:
    body = ALL_REDUCE
    if operation == "partition_id":
        body = "%0 = stablehlo.partition_id : tensor<ui32>\n return %x : tensor<4xf32>"
    with pytest.raises(
        NEFFCompilationError, match=f"no implementation of the collective operation stablehlo.{operation}"
    ):
        _neff(body)


def test_a_program_whose_plugin_is_gone_does_not_load(library: ctypes.CDLL) -> None:
    class Passing:
        @hookimpl
        def torch_neuronx_register_lowerings(self) -> list[Lowering]:
            return [Lowering("toy::passing.default", "toy_passing", _capsule(library, "toy_scale"), "1")]

    plugins.manager().register(Passing(), "passing")
    try:
        neff = _neff(_call("toy_passing", "%0", "%x", "factor = 2.0 : f64") + "return %0 : tensor<4xf32>")
    finally:
        plugins.manager().unregister("passing")
    with pytest.raises(NEFFExecutionError, match="calls 'toy_passing', for which no installed plugin"):
        select_runtime().load(neff, 0)


def test_an_unknown_custom_call_is_an_error() -> None:
    with pytest.raises(NEFFCompilationError, match="does not implement the custom call 'nobodys'"):
        _neff(_call("nobodys", "%0", "%x") + "return %0 : tensor<4xf32>")


def test_registered_collectives_are_part_of_the_compilers_version(toy: Toy) -> None:
    compiler = plugins.manager().compilers()["emulator"]
    with_toy = compiler.version()
    plugins.manager().unregister("toy")
    try:
        assert compiler.version() != with_toy
    finally:
        plugins.manager().register(toy, "toy")


class Expanding:
    """Expands an operator; ``own`` is what only this process knows."""

    def __init__(self, own: str) -> None:
        self.own = own

    @hookimpl
    def torch_neuronx_register_expansions(self) -> list[Expansion]:
        return [Expansion("toy::power.default", "toy_expansion:power", "1", self._rewrite)]

    def _rewrite(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        if arguments["name"] == "unknown":
            raise NotImplementedError("nobody knows it")
        return {"name": self.own}


@pytest.mark.parametrize(("own", "expected"), [("square", [1, 4, 9]), ("cube", [1, 8, 27])])
def test_an_expansion_builds_operations_from_rewritten_arguments(
    own: str, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    worker().close()  # the next one gets the path
    plugins.manager().register(Expanding(own), "expanding")
    try:
        with torch.library._scoped_library("toy", "DEF") as definitions:
            definitions.define("power(Tensor x, str name) -> Tensor")
            definitions.impl("power", lambda x, name: x * 0, "CompositeExplicitAutograd")
            torch.library.register_fake("toy::power", lambda x, name: torch.empty_like(x), lib=definitions)
            x = torch.tensor([1.0, 2.0, 3.0], device="neuron")
            assert compiled(lambda x: torch.ops.toy.power(x, "mine"))(x).tolist() == expected
            with pytest.raises(Unsupported, match="it has no lowering: nobody knows it"):
                compiled(lambda x: torch.ops.toy.power(x, "unknown"))(x)
            with pytest.raises(Unsupported, match="it has no lowering"):
                compiled(lambda x: torch.ops.toy.power(x.int(), "mine"))(x)
    finally:
        plugins.manager().unregister("expanding")
