"""The plugin manager: discovery, and what happens to plugins that misbehave."""

import sys
import textwrap
import threading
import warnings
from pathlib import Path

import pluggy
import pytest

from torch_neuronx import plugins
from torch_neuronx.errors import DuplicatePluginNameError, PluginError, PluginWarning
from torch_neuronx.events import Event, GraphBroke
from torch_neuronx.hookspecs import hookimpl
from torch_neuronx.plugins import ENTRY_POINT_GROUP, PluginManager, PluginState
from torch_neuronx.targets import TRN2

from . import distributions

TARGET = """
    import dataclasses
    from torch_neuronx.hookspecs import hookimpl
    from torch_neuronx.targets import TRN2

    @hookimpl
    def torch_neuronx_register_targets():
        return [dataclasses.replace(TRN2, name={name!r})]
"""


class Installed:
    """A folder of installed plugins."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, name: str, source: str, entry: str | None = None) -> None:
        """Install the distribution ``name`` whose plugin ``entry`` is a module with ``source``."""
        module = f"{self.folder.name}_{name}".replace("-", "_")
        point = {entry or name: module}
        distributions.install(self.folder, name, point, {module: textwrap.dedent(source)}, ENTRY_POINT_GROUP)

    def manager(self) -> PluginManager:
        return PluginManager(distributions.entry_points(self.folder, ENTRY_POINT_GROUP))


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("TORCH_NEURONX_DISABLE_PLUGINS", raising=False)
    return Installed(tmp_path)


def states(manager: PluginManager) -> dict[str, PluginState]:
    return {record.name: record.state for record in manager.records()}


def reason(manager: PluginManager, name: str) -> str:
    return next(record.reason for record in manager.records() if record.name == name)


def test_installed_plugins_are_loaded_when_first_asked(installed: Installed) -> None:
    installed.add("lab-chips", TARGET.format(name="lab"))
    manager = installed.manager()
    assert not [module for module in sys.modules if module.endswith("_lab_chips")]
    assert set(manager.targets()) == {"trn2", "trn3", "lab"}
    record = manager.records()[1]
    assert (record.name, record.distribution, record.version) == ("lab-chips", "lab-chips", "1.0")
    assert record.state is PluginState.LOADED
    assert record.hooks == ("torch_neuronx_register_targets",)
    assert record.value.endswith("_lab_chips")


def test_one_that_raises_at_import_is_named_in_one_warning_and_skipped(installed: Installed) -> None:
    installed.add("broken", "import no_such_module_anywhere")
    installed.add("lab", TARGET.format(name="lab"))
    manager = installed.manager()
    with pytest.warns(PluginWarning) as caught:
        assert "lab" in manager.targets()
    assert len(caught) == 1
    message = str(caught[0].message)
    assert message.startswith(
        "The plugin 'broken' (broken 1.0) was skipped: ModuleNotFoundError: No module named 'no_such"
    )
    assert isinstance(caught[0].message, Warning)
    assert isinstance(caught[0].message.__cause__, ModuleNotFoundError)
    assert states(manager) == {"builtin": "loaded", "broken": "skipped", "lab": "loaded"}
    manager.targets()  # no second warning: warnings are errors


@pytest.mark.parametrize("names", ["lab", "LAB", "all", "other, lab", "lab_dist", "lab-dist"])
def test_plugins_are_left_out_by_name_or_by_distribution(
    installed: Installed, monkeypatch: pytest.MonkeyPatch, names: str
) -> None:
    installed.add("lab-dist", "raise AssertionError('imported')", entry="lab")
    monkeypatch.setenv("TORCH_NEURONX_DISABLE_PLUGINS", names)
    manager = installed.manager()
    assert set(manager.targets()) == {"trn2", "trn3"}
    assert states(manager)["lab"] is PluginState.DISABLED
    assert "TORCH_NEURONX_DISABLE_PLUGINS" in reason(manager, "lab")


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (
            "from torch_neuronx.hookspecs import hookimpl\n@hookimpl\ndef torch_neuronx_register_target(): ...",
            "there is no hook torch_neuronx_register_target; did you mean torch_neuronx_register_targets?",
        ),
        (
            "from torch_neuronx.hookspecs import hookimpl\n@hookimpl\ndef something_else_altogether(): ...",
            "there is no hook something_else_altogether",
        ),
        (
            "from torch_neuronx.hookspecs import hookimpl\n@hookimpl\ndef torch_neuronx_observe(evnt): ...",
            "Argument(s) {'evnt'} are declared in the hookimpl but can not be found in the hookspec",
        ),
        (
            "from torch_neuronx.hookspecs import hookimpl\n@hookimpl(wrapper=True)\n"
            "def torch_neuronx_observe(event):\n    return (yield)",
            "torch_neuronx_observe is a hook wrapper",
        ),
        ("def torch_neuronx_observe(event): ...", "it implements no hook; mark its functions"),
    ],
    ids=["misspelt", "unknown", "argument", "wrapper", "unmarked"],
)
def test_one_that_does_not_follow_the_hooks_is_skipped_with_the_reason(
    installed: Installed, source: str, why: str
) -> None:
    installed.add("wrong", source)
    installed.add("right", TARGET.format(name="lab"))
    manager = installed.manager()
    with pytest.warns(PluginWarning, match="'wrong'") as caught:
        assert "lab" in manager.targets()
    assert len(caught) == 1
    assert why in reason(manager, "wrong")
    assert why in str(caught[0].message)
    assert states(manager)["wrong"] is PluginState.SKIPPED
    manager.notify(Event())


def test_an_optional_hook_may_be_unknown(installed: Installed) -> None:
    installed.add(
        "optional",
        "from torch_neuronx.hookspecs import hookimpl\n@hookimpl(optionalhook=True)\ndef not_here_yet(): ...",
    )
    assert states(installed.manager())["optional"] is PluginState.LOADED


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("raise ZeroDivisionError('oh')", "torch_neuronx_register_targets raised ZeroDivisionError: oh"),
        ("return None", "'NoneType' object is not iterable"),
        ("return ['trn9']", "'trn9' is no Target"),
    ],
)
def test_one_whose_hook_misbehaves_is_left_out_from_then_on(installed: Installed, body: str, why: str) -> None:
    installed.add(
        "wrong",
        f"from torch_neuronx.hookspecs import hookimpl\n@hookimpl\ndef torch_neuronx_register_targets():\n    {body}\n"
        "@hookimpl\ndef torch_neuronx_observe(event):\n    raise AssertionError('still there')",
    )
    manager = installed.manager()
    with pytest.warns(PluginWarning, match="'wrong'") as caught:
        assert set(manager.targets()) == {"trn2", "trn3"}
    assert len(caught) == 1
    assert why in reason(manager, "wrong")
    assert manager.targets()
    manager.notify(Event())


class TestTwoOfOneName:
    def test_two_that_register_one_target(self, installed: Installed) -> None:
        installed.add("first", TARGET.format(name="lab"))
        installed.add("second", TARGET.format(name="lab"))
        manager = installed.manager()
        with pytest.raises(DuplicatePluginNameError) as caught:
            manager.targets()
        message = str(caught.value)
        assert "a target named 'lab'" in message
        assert "plugin 'first' (first 1.0)" in message
        assert "plugin 'second' (second 1.0)" in message
        assert "TORCH_NEURONX_DISABLE_PLUGINS=second" in message
        assert set(manager.runtimes()) == {"nrt", "emulator"}

    def test_one_that_registers_a_builtin_target(self, installed: Installed) -> None:
        installed.add("mine", TARGET.format(name="trn2"))
        with pytest.raises(DuplicatePluginNameError, match=r"'trn2'.*'builtin' \(torch-neuronx.*'mine'"):
            installed.manager().targets()

    def test_two_distributions_with_one_plugin_name(
        self, installed: Installed, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        installed.add("first", TARGET.format(name="a"), entry="lab")
        installed.add("second", TARGET.format(name="b"), entry="lab")
        manager = installed.manager()
        for _ in range(2):
            with pytest.raises(DuplicatePluginNameError, match=r"'lab': (first and second|second and first)"):
                manager.targets()
        assert len(manager.records()) == 3
        monkeypatch.setenv("TORCH_NEURONX_DISABLE_PLUGINS", "second")
        assert "a" in installed.manager().targets()

    def test_the_builtin_name_is_taken(self, installed: Installed) -> None:
        installed.add("first", TARGET.format(name="a"), entry="builtin")
        with pytest.raises(DuplicatePluginNameError, match="'builtin': torch-neuronx and first"):
            installed.manager().targets()


class TestAddedHooks:
    SPECS = """
        import sys
        import pluggy

        hookspec = pluggy.HookspecMarker("torch_neuronx")
        hookimpl = pluggy.HookimplMarker("torch_neuronx")

        class Specs:
            @hookspec
            def torch_neuronx_register_stores(self): ...

        @hookimpl
        def torch_neuronx_add_hookspecs():
            return Specs
    """
    STORE = """
        import pluggy

        @pluggy.HookimplMarker("torch_neuronx")
        def torch_neuronx_register_stores():
            return {"vault": "a store"}
    """

    def test_plugins_implement_the_hooks_of_others(self, installed: Installed) -> None:
        installed.add("a-store", self.STORE)  # comes before the plugin that adds its hook
        installed.add("specs", self.SPECS)
        manager = installed.manager()
        assert manager.call_each("torch_neuronx_register_stores") == [("a-store", {"vault": "a store"})]
        assert manager.call_first("torch_neuronx_register_stores") == {"vault": "a store"}

    def test_without_them_the_hook_has_no_implementations(self, installed: Installed) -> None:
        installed.add("a-store", self.STORE)
        manager = installed.manager()
        with pytest.warns(PluginWarning, match="there is no hook torch_neuronx_register_stores"):
            assert manager.call_each("torch_neuronx_register_stores") == []
        assert manager.call_first("torch_neuronx_register_stores") is None

    def test_two_that_add_one_hook(self, installed: Installed) -> None:
        installed.add("specs", self.SPECS)
        installed.add("specs-again", self.SPECS)
        manager = installed.manager()
        with pytest.warns(PluginWarning, match=r"'specs-again'.*already registered"):
            manager.load()
        assert states(manager)["specs"] is PluginState.LOADED


class Watcher:
    def __init__(self) -> None:
        self.events: list[Event] = []

    @hookimpl
    def torch_neuronx_observe(self, event: Event) -> None:
        self.events.append(event)


class TestObservers:
    def test_each_receives_every_event(self) -> None:
        manager, one, two = PluginManager([]), Watcher(), Watcher()
        manager.register(one, "one")
        manager.register(two, "two")
        event = GraphBroke("aten::sort", "too long")
        manager.notify(event)
        manager.unregister("one")
        manager.notify(event)
        assert one.events == [event]
        assert two.events == [event, event]

    def test_observed_says_whether_anybody_listens(self) -> None:
        manager = PluginManager([])
        assert manager.observed  # metrics
        manager.unregister("builtin")
        assert not manager.observed
        manager.register(Watcher(), "watcher")
        assert manager.observed

    def test_one_that_raises_is_named_once_and_the_others_go_on(self) -> None:
        class Bad:
            @hookimpl
            def torch_neuronx_observe(self) -> None:
                raise ValueError("oh")

        manager, watcher = PluginManager([]), Watcher()
        manager.register(Bad(), "bad")
        manager.register(watcher, "watcher")
        with pytest.warns(PluginWarning, match="'bad'.* observes no more events: it raised ValueError: oh") as caught:
            manager.notify(Event())
        assert len(caught) == 1
        manager.notify(Event())
        assert len(watcher.events) == 2


class AddsNothing:
    @hookimpl
    def torch_neuronx_add_hookspecs(self) -> object:
        return object()


class TestRegister:
    def test_answers_change_with_the_plugins(self) -> None:
        class Chips:
            @hookimpl
            def torch_neuronx_register_targets(self) -> list[object]:
                return [TRN2.__class__(**{f: getattr(TRN2, f) for f in TRN2.__slots__} | {"name": "lab"})]

        manager = PluginManager([])
        assert "lab" not in manager.targets()
        manager.register(Chips(), "chips")
        assert "lab" in manager.targets()
        assert [record.name for record in manager.records()] == ["builtin", "chips"]
        manager.unregister("chips")
        assert "lab" not in manager.targets()
        assert [record.name for record in manager.records()] == ["builtin"]

    def test_mistakes_raise(self) -> None:
        manager = PluginManager([])
        with pytest.raises(PluginError, match="implements no hook"):
            manager.register(object(), "nothing")
        manager.register(Watcher(), "watcher")
        with pytest.raises(DuplicatePluginNameError, match="'watcher'"):
            manager.register(Watcher(), "watcher")
        with pytest.raises(PluginError, match="did not find any"):
            manager.register(AddsNothing(), "adds")
        with pytest.raises(PluginError, match="no plugin 'nobody'"):
            manager.unregister("nobody")
        assert [record.name for record in manager.records()] == ["builtin", "watcher"]


def test_a_plugin_may_ask_the_manager_while_it_is_imported(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:

    source = "from torch_neuronx import plugins\nassert 'trn2' in plugins.manager().targets()\n" + textwrap.dedent(
        TARGET.format(name="lab")
    )
    installed.add("asks", source)
    manager = installed.manager()
    monkeypatch.setattr(plugins, "manager", lambda: manager)
    assert "lab" in manager.targets()


def test_threads_that_ask_at_once_all_wait_for_the_plugins(installed: Installed) -> None:
    installed.add("slow", "import time; time.sleep(0.2)\n" + textwrap.dedent(TARGET.format(name="lab")))
    manager = installed.manager()
    seen: list[bool] = []
    threads = [threading.Thread(target=lambda: seen.append("lab" in manager.targets())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [True] * 8


def test_a_warning_made_an_error_leaves_the_manager_whole(installed: Installed) -> None:
    installed.add("broken", "raise ValueError('oh')")
    installed.add("lab", TARGET.format(name="lab"))
    manager = installed.manager()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(PluginWarning):
            manager.targets()
    assert "lab" in manager.targets()


def test_the_marker_needs_only_the_projects_name() -> None:
    class Plugin:
        @pluggy.HookimplMarker("torch_neuronx")
        def torch_neuronx_observe(self, event: Event) -> None: ...

    manager = PluginManager([])
    manager.register(Plugin(), "plain")
    manager.notify(Event())
