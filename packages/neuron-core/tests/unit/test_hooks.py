"""Every hook through the manager's typed methods, and the page that documents them."""

import ast
import dataclasses
import importlib.util
import inspect
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pluggy
import pytest

from torch_neuronx import hookspecs
from torch_neuronx.compilers import Compiler, CompileRequest
from torch_neuronx.errors import DuplicatePluginNameError, PluginWarning
from torch_neuronx.events import Event, GraphExecuted
from torch_neuronx.hookspecs import hookimpl
from torch_neuronx.kernels import KernelOffer
from torch_neuronx.lowerings import Collective, Expansion, Lowering
from torch_neuronx.op_status import OpRecord, OpStatus
from torch_neuronx.plugins import PluginManager
from torch_neuronx.runtimes.emulator import EmulatorRuntime
from torch_neuronx.runtimes.interface import Runtime
from torch_neuronx.targets import TRN2, TRN3, Target, core_layout

ROOT = Path(__file__).resolve().parents[4]
HOOKS = {name: spec for name, spec in vars(hookspecs).items() if name.startswith("torch_neuronx_")}


def manager(*plugins: object) -> PluginManager:
    manager = PluginManager([])
    for number, plugin in enumerate(plugins):
        manager.register(plugin, f"plugin-{number}")
    return manager


def test_hook_torch_neuronx_add_hookspecs() -> None:
    class Specs:
        @pluggy.HookspecMarker("torch_neuronx")
        def torch_neuronx_paint(self, colour: str) -> str: ...  # type: ignore[empty-body]

    class Adds:
        @hookimpl
        def torch_neuronx_add_hookspecs(self) -> object:
            return Specs

    class Paints:
        @hookimpl
        def torch_neuronx_paint(self, colour: str) -> str:
            return f"painted {colour}"

    pm = manager(Adds(), Paints())
    assert pm.call_each("torch_neuronx_paint", colour="red") == [("plugin-1", "painted red")]


def test_hook_torch_neuronx_register_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    half = dataclasses.replace(TRN2, name="half", cores_per_chip=4, hbm_per_chip=TRN2.hbm_per_chip // 4)

    class Chips:
        @hookimpl
        def torch_neuronx_register_targets(self) -> Iterator[Target]:
            yield half

    pm = manager(Chips())
    assert pm.targets() == {"trn2": TRN2, "trn3": TRN3, "half": half}
    assert pm.targets()["half"] is half  # a generator is read once
    monkeypatch.setattr("torch_neuronx.plugins.manager", lambda: pm)
    layout = core_layout({"NEURON_PLATFORM_TARGET_OVERRIDE": "half"})
    assert layout.target is half
    assert len(layout.logical_cores) == 2
    assert layout.hbm_bytes_per_core == 12 * 2**30


def test_hook_torch_neuronx_register_runtimes() -> None:
    class Remote(EmulatorRuntime):
        name = "remote"

    class Runtimes:
        @hookimpl
        def torch_neuronx_register_runtimes(self) -> list[Runtime]:
            return [Remote()]

    pm = manager(Runtimes())
    assert set(pm.runtimes()) == {"nrt", "emulator", "remote"}
    assert pm.runtimes()["remote"] is pm.runtimes()["remote"]
    with pytest.raises(DuplicatePluginNameError, match="a runtime named 'remote'"):
        manager(Runtimes(), Runtimes()).runtimes()


def test_hook_torch_neuronx_register_compilers() -> None:
    class Nop:
        name, runtime = "nop", "emulator"

        def version(self) -> str:
            return "1"

        def compile(self, request: CompileRequest) -> bytes:
            return request.program

    class Compilers:
        @hookimpl
        def torch_neuronx_register_compilers(self) -> list[Compiler]:
            return [Nop()]

    assert manager().compilers() == {}
    assert manager(Compilers()).compilers()["nop"].compile(CompileRequest(b"p", "g", "trn2", 2, {})) == b"p"
    with pytest.raises(DuplicatePluginNameError, match="a compiler named 'nop'"):
        manager(Compilers(), Compilers()).compilers()


def test_hook_torch_neuronx_op_statuses() -> None:
    class Table:
        def __init__(self, status: OpStatus | None) -> None:
            self.status = status

        @hookimpl
        def torch_neuronx_op_statuses(self, target: Target) -> Mapping[str, OpRecord] | None:
            return None if self.status is None else {"aten::eye": OpRecord(self.status, target.name)}

    assert manager().op_statuses(TRN2) is None
    assert manager(Table(None)).op_statuses(TRN2) is None
    table = manager(Table(OpStatus.NATIVE), Table(OpStatus.FALLBACK), Table(None)).op_statuses(TRN3)
    assert table == {"aten::eye": OpRecord(OpStatus.FALLBACK, "trn3")}  # the last that has a table


def test_hook_torch_neuronx_device_opened() -> None:
    script = """
from torch_neuronx import plugins
from torch_neuronx.hookspecs import hookimpl

class Waits:
    @hookimpl
    def torch_neuronx_device_opened(self):
        told.append(torch.neuron.is_initialized())

import torch
told = []
plugins.manager().register(Waits(), "waits")
assert told == []
for _ in range(2):
    torch.ones(2, device="neuron")
assert told == [True], told
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


def test_hook_torch_neuronx_first_tensor() -> None:
    script = """
from torch_neuronx import plugins
from torch_neuronx.hookspecs import hookimpl

class Objects:
    allowed = False
    @hookimpl
    def torch_neuronx_first_tensor(self, layout):
        return None if self.allowed else ValueError(f"no tensor on {len(layout.logical_cores)} cores")

import torch
objects = Objects()
plugins.manager().register(objects, "objects")
torch.neuron.set_device(0)  # opens the device, and makes no tensor
for make in (lambda: torch.ones(2, device="neuron"), lambda: torch.ones(2).to("neuron")):
    try:
        make()
    except ValueError as error:
        assert "no tensor on 4 cores" in str(error)
    else:
        raise AssertionError
objects.allowed = True
torch.ones(2, device="neuron")
objects.allowed = False
torch.ones(2, device="neuron")  # no longer the first
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


def test_hook_torch_neuronx_register_decompositions() -> None:
    import torch

    eye, relu = torch.ops.aten.eye.default, torch.ops.aten.relu.default

    class Decompositions:
        def __init__(self, table: dict[Any, Callable[..., Any]]) -> None:
            self.table = table

        @hookimpl
        def torch_neuronx_register_decompositions(self) -> dict[Any, Callable[..., Any]]:
            return self.table

    first, second = (lambda x: x), (lambda x: -x)
    pm = manager(Decompositions({eye: first, relu: first}), Decompositions({relu: second}))
    assert pm.decompositions() == {eye: first, relu: second}


def test_hook_torch_neuronx_register_lowerings() -> None:
    scale = Lowering("mylib::scale.default", "MyScale", handler=object, fingerprint="1")

    class Lowerings:
        @hookimpl
        def torch_neuronx_register_lowerings(self) -> list[Lowering]:
            return [scale]

    lowering = manager(Lowerings()).lowerings()["mylib::scale.default"]
    assert (lowering.ordered, lowering.mutates, lowering.worker_stub) == (False, (), None)
    with pytest.raises(DuplicatePluginNameError, match=r"a lowering named 'mylib::scale.default'"):
        manager(Lowerings(), Lowerings()).lowerings()


def test_hook_torch_neuronx_register_expansions() -> None:
    scale = Expansion("mylib::scale.default", build="my_package.stablehlo:scale", fingerprint="1")

    class Expansions:
        @hookimpl
        def torch_neuronx_register_expansions(self) -> list[Expansion]:
            return [scale]

    assert manager(Expansions()).expansions() == {"mylib::scale.default": scale}
    with pytest.raises(DuplicatePluginNameError, match=r"a graph expansion named 'mylib::scale.default'"):
        manager(Expansions(), Expansions()).expansions()


def test_hook_torch_neuronx_register_collectives() -> None:
    reduce = Collective("all_reduce", "my_all_reduce", handler=object, fingerprint="1")

    class Collectives:
        @hookimpl
        def torch_neuronx_register_collectives(self) -> list[Collective]:
            return [reduce]

    assert manager(Collectives()).collectives() == {"all_reduce": reduce}
    with pytest.raises(DuplicatePluginNameError, match=r"a collective named 'all_reduce'"):
        manager(Collectives(), Collectives()).collectives()


def test_hook_torch_neuronx_register_kernels() -> None:
    def offer(name: str, op: str, priority: int) -> KernelOffer:
        return KernelOffer(name, op, kernel=lambda x: x, predicate=lambda x: True, priority=priority)

    class Kernels:
        @hookimpl
        def torch_neuronx_register_kernels(self) -> list[KernelOffer]:
            return [
                offer("a", "aten::mm", 0),
                offer("b", "aten::mm", 5),
                offer("c", "aten::mm", 0),
                offer("d", "x::y", 9),
            ]

    pm = manager(Kernels())
    assert [kernel.name for kernel in pm.kernels("aten::mm")] == ["b", "a", "c"]
    assert pm.kernels("aten::bmm") == ()


def test_hook_torch_neuronx_observe() -> None:
    class Watches:
        def __init__(self) -> None:
            self.seen: list[Event] = []

        @hookimpl
        def torch_neuronx_observe(self, event: Event) -> None:
            self.seen.append(event)

    watches = Watches()
    event = GraphExecuted("graph", 0, 0.001)
    pm = manager(watches)
    assert pm.watched
    pm.notify(event)
    assert watches.seen == [event]


def test_counters_alone_are_nobody_who_watches() -> None:
    class Fails:
        @hookimpl
        def torch_neuronx_observe(self, event: Event) -> None:
            raise ValueError("no")

    assert not manager().watched
    pm = manager(Fails())
    with pytest.warns(PluginWarning, match="observes no more events"):
        pm.notify(GraphExecuted("graph", 0, 0.001))
    assert not pm.watched


def test_every_hook_has_a_test() -> None:
    tests = {name.removeprefix("test_hook_") for name in globals() if name.startswith("test_hook_")}
    assert tests == set(HOOKS)


@pytest.mark.parametrize("name", HOOKS)
def test_the_page_has_the_exact_signature(name: str) -> None:
    page = (ROOT / "docs" / "hooks.md").read_text(encoding="utf-8")
    assert f"\n## `{name}`\n" in page
    signature = str(inspect.signature(HOOKS[name])).replace("'", "")
    assert f"\ndef {name}{signature}\n" in page


def test_the_page_is_current_and_its_examples_are_python() -> None:
    path = ROOT / "tools" / "generate_docs.py"
    spec = importlib.util.spec_from_file_location("generate_docs", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = (ROOT / "docs" / "hooks.md").read_text(encoding="utf-8")
    assert page == module.hooks_page(), "run: python tools/generate_docs.py"
    examples = [block.split("```")[0] for block in page.split("```python\n")[1:]]
    for example in examples:
        ast.parse(example if "@hookimpl" in example else f"{example.rstrip()}: ...")
    assert len(examples) == 2 * len(HOOKS)


@pytest.mark.parametrize("name", HOOKS)
def test_hooks_are_documented_in_one_form(name: str) -> None:
    doc = inspect.getdoc(HOOKS[name]) or ""
    assert "Called " in doc
    assert "Example::" in doc
    for parameter in inspect.signature(HOOKS[name]).parameters:
        assert f":param {parameter}: " in doc
    if inspect.signature(HOOKS[name]).return_annotation != "None":
        assert ":return: " in doc
