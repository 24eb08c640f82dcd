"""Which plugins there are, and what they provide.

A typed front of :class:`pluggy.PluginManager`: one method per hook. Installed plugins are imported when the first
answer is needed. One that cannot be imported, or does not follow the hooks, is named in one warning and left out.
"""

import difflib
import inspect
import itertools
import re
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any, cast

import pluggy

from torch_neuronx import builtin, config, hookspecs, installed
from torch_neuronx.compilers import Compiler
from torch_neuronx.errors import DuplicatePluginNameError, PluginError, PluginWarning
from torch_neuronx.events import Event
from torch_neuronx.kernels import KernelOffer
from torch_neuronx.lowerings import Collective, Expansion, Lowering
from torch_neuronx.op_status import OpRecord
from torch_neuronx.runtimes.interface import Runtime
from torch_neuronx.targets import Target

if TYPE_CHECKING:
    from torch._ops import OpOverload

ENTRY_POINT_GROUP = "torch_neuronx.plugins"
BUILTIN = "builtin"
"""Name of the core's own plugin."""


class PluginState(StrEnum):
    """What became of a plugin that was found."""

    LOADED = "loaded"
    SKIPPED = "skipped"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True)
class PluginRecord:
    """One plugin that was found."""

    name: str
    distribution: str
    version: str
    value: str
    """What its entry point names: ``module`` or ``module:object``."""
    state: PluginState
    reason: str = ""
    """Why it is not loaded."""
    hooks: tuple[str, ...] = ()
    """The hooks that it implements."""

    def __str__(self) -> str:
        """Name the plugin and what brought it."""
        return f"plugin {self.name!r} ({f'{self.distribution} {self.version}'.strip() or self.value})"


_generations = itertools.count()
"""Of all managers together, so that no two of them share a number."""


class PluginManager:
    """Finds, loads and asks plugins. Safe to use from several threads."""

    def __init__(self, entry_points: Iterable[EntryPoint] | None = None) -> None:
        """Prepare a manager for ``entry_points``, by default those of the installed distributions."""
        self._entry_points = entry_points
        self._pluggy = pluggy.PluginManager(hookspecs.PROJECT)
        self._pluggy.add_hookspecs(hookspecs)
        self._records: dict[tuple[str, str], PluginRecord] = {}
        self._observers: tuple[tuple[str, Callable[[Event], object]], ...] = ()
        self._watched = False
        self._results: dict[tuple[str, str], Any] = {}
        self._kernels: dict[str, tuple[KernelOffer, ...]] = {}
        self._generation = next(_generations)
        self._conflict: DuplicatePluginNameError | None = None
        self._lock = threading.RLock()
        self._loaded = False
        self._loading = False

    # What plugins provide -------------------------------------------------------------------------------------------

    def targets(self) -> Mapping[str, Target]:
        """Return every target by name."""
        return self._named("torch_neuronx_register_targets", Target, "name", "target")

    def runtimes(self) -> Mapping[str, Runtime]:
        """Return every runtime by name."""
        return self._named("torch_neuronx_register_runtimes", Runtime, "name", "runtime")

    def compilers(self) -> Mapping[str, Compiler]:
        """Return every compiler by name."""
        return self._named("torch_neuronx_register_compilers", Compiler, "name", "compiler")

    def op_statuses(self, target: Target) -> Mapping[str, OpRecord] | None:
        """Return the live operator table for ``target``, or ``None`` where no plugin has one."""
        return cast("Mapping[str, OpRecord] | None", self.call_first("torch_neuronx_op_statuses", target=target))

    def decompositions(self) -> Mapping["OpOverload", Callable[..., Any]]:
        """Return every decomposition by operator; of two for one operator, the later plugin's."""
        table: dict[OpOverload, Callable[..., Any]] = {}
        for _, entries in self._call("torch_neuronx_register_decompositions", dict, {}):
            table.update(entries)
        return table

    def lowerings(self) -> Mapping[str, Lowering]:
        """Return every lowering by operator."""
        return self._named("torch_neuronx_register_lowerings", Lowering, "op", "lowering")

    def expansions(self) -> Mapping[str, Expansion]:
        """Return every expansion by operator."""
        return self._named("torch_neuronx_register_expansions", Expansion, "op", "graph expansion")

    def collectives(self) -> Mapping[str, Collective]:
        """Return what the emulator runs for collectives, by operation."""
        return self._named("torch_neuronx_register_collectives", Collective, "op", "collective")

    def kernels(self, op: str) -> tuple[KernelOffer, ...]:
        """Return the kernels offered for ``op``, the highest priority first."""
        kept = self._kernels.get(op)  # asked at every call of the operator
        if kept is None:
            offers = self._named("torch_neuronx_register_kernels", KernelOffer, "name", "kernel").values()
            kept = tuple(sorted((offer for offer in offers if offer.op == op), key=lambda offer: -offer.priority))
            self._kernels[op] = kept
        return kept

    def offered(self) -> tuple[str, ...]:
        """Return the operators for which kernels are offered, each once."""
        offers = self._named("torch_neuronx_register_kernels", KernelOffer, "name", "kernel").values()
        return tuple(dict.fromkeys(offer.op for offer in offers))

    @property
    def generation(self) -> int:
        """A number that changes whenever a plugin's answers may: the key of what is derived from them."""
        self.load()
        return self._generation

    @property
    def observed(self) -> bool:
        """Whether anybody receives events; a hot path asks before it makes one."""
        self.load()
        return bool(self._observers)

    @property
    def watched(self) -> bool:
        """Whether anybody but the core's own counters receives events; a hot path then counts by itself."""
        self.load()
        return self._watched

    def notify(self, event: Event) -> None:
        """Hand ``event`` to every observer. One that raises is named in a warning and receives no more events."""
        self.load()
        for name, observe in self._observers:
            try:
                observe(event)
            except Exception as error:
                self._observe_with(observer for observer in self._observers if observer[0] != name)
                _warn(f"The {self._describe(name)} observes no more events: it raised {_reason(error)}", error)

    def call_each(self, hook: str, **arguments: object) -> list[tuple[str, Any]]:
        """Call ``hook`` on each plugin that implements it and return pairs of plugin name and result.

        The core's own plugin comes first, then the others by name; ``trylast`` implementations come before and
        ``tryfirst`` ones after these, so that of entries that replace one another theirs lose or win. A plugin that
        raises is named in a warning and left out from then on. A hook that nobody specifies has no implementations:
        the distribution that adds it is not installed.
        """
        return self._call(hook, lambda result: result, arguments)

    def call_first(self, hook: str, **arguments: object) -> Any | None:
        """Call ``hook`` on one plugin after the other, in the reverse order, and return the first that is not ``None``.

        What :meth:`call_each` says about plugins that raise and about unknown hooks holds here too.
        """
        for implementation in reversed(self._implementations(hook)):
            for result in self._ask(implementation, hook, lambda result: result, arguments):
                if result is not None:
                    return result
        return None

    def ask_again(self, *hooks: str) -> None:
        """Forget the kept answers to ``hooks``: a plugin has another answer from now on."""
        with self._lock:
            self._results = {key: result for key, result in self._results.items() if key[0] not in hooks}
            self._forget_derived()

    # Which plugins there are ------------------------------------------------------------------------------------------

    def records(self) -> tuple[PluginRecord, ...]:
        """Return every plugin that was found, loaded or not."""
        self.load()
        with self._lock:
            return tuple(self._records.values())

    def register(self, plugin: object, name: str) -> None:
        """Add a plugin from a program or a test.

        Raises :class:`PluginError` if it does not follow the hooks or the name is taken.
        """
        self.load()
        with self._lock:
            if self._pluggy.has_plugin(name):
                raise DuplicatePluginNameError(f"A {self._describe(name)} is registered already. Use another name.")
            record = PluginRecord(name, "", "", f"registered by {_module_of(plugin)}", PluginState.LOADED)
            self._add_hookspecs(plugin)
            self._add(plugin, record)
            self._refresh()

    def unregister(self, name: str) -> None:
        """Remove a plugin that :meth:`register` added, or a loaded one.

        Raises :class:`PluginError` if there is no such plugin.
        """
        self.load()
        with self._lock:
            if self._pluggy.unregister(name=name) is None:
                raise PluginError(f"There is no plugin {name!r}. `torch-neuronx plugins` lists those that there are.")
            self._forget(name)
            self._records = {key: record for key, record in self._records.items() if record.name != name}

    def load(self) -> None:
        """Import the installed plugins; the first call does it, and every other method makes that call."""
        if self._loaded:
            return
        with self._lock:
            # A plugin's import may ask this manager something; it sees what was loaded before it.
            if self._loaded or self._loading:
                return
            self._loading = True
            try:
                skipped = self._load()
            finally:
                self._loading = False
            self._loaded = True
        for record, error in skipped:
            _warn(f"The {record} was skipped: {_reason(error)}", error)

    # ------------------------------------------------------------------------------------------------------------------

    def _load(self) -> list[tuple[PluginRecord, BaseException]]:
        version = installed.version("torch-neuronx") or ""
        self._add(builtin, PluginRecord(BUILTIN, "torch-neuronx", version, builtin.__name__, PluginState.LOADED))
        found = installed.entry_points(ENTRY_POINT_GROUP) if self._entry_points is None else self._entry_points
        disabled = {_normalize(name) for name in config.get(config.DISABLE_PLUGINS)}
        skipped: list[tuple[PluginRecord, BaseException]] = []
        plugins: dict[str, tuple[PluginRecord, object]] = {}

        def skip(record: PluginRecord, error: BaseException) -> None:
            record = replace(record, state=PluginState.SKIPPED, reason=_reason(error), hooks=())
            self._remember(record)
            skipped.append((record, error))

        for entry_point in sorted(found, key=lambda entry_point: entry_point.name):
            record = _record_of(entry_point)
            if not disabled.isdisjoint({"all", _normalize(record.name), _normalize(record.distribution)}):
                reason = f"named in {config.DISABLE_PLUGINS.name}"
                self._remember(replace(record, state=PluginState.DISABLED, reason=reason))
            elif record.name in plugins or record.name == BUILTIN:
                other = plugins[record.name][0] if record.name in plugins else self._records[BUILTIN, "torch-neuronx"]
                self._conflict = DuplicatePluginNameError(
                    f"Two distributions install a plugin named {record.name!r}: "
                    f"{other.distribution} and {record.distribution}. Uninstall one, or leave one out with "
                    f"{config.DISABLE_PLUGINS.name}={record.distribution}."
                )
                self._remember(replace(record, state=PluginState.SKIPPED, reason=str(self._conflict)))
            else:
                try:
                    plugins[record.name] = record, entry_point.load()
                except Exception as error:
                    skip(record, error)

        # Two passes: a hook that one plugin adds may be implemented by a plugin that comes before it.
        for record, plugin in list(plugins.values()):
            try:
                self._add_hookspecs(plugin)
            except Exception as error:
                skip(record, error)
                del plugins[record.name]
        for record, plugin in plugins.values():
            try:
                self._add(plugin, record)
            except Exception as error:
                skip(record, error)
        self._refresh()
        return skipped

    def _add_hookspecs(self, plugin: object) -> None:
        hook = "torch_neuronx_add_hookspecs"
        if self._pluggy.parse_hookimpl_opts(plugin, hook) is not None:
            try:
                self._pluggy.add_hookspecs(getattr(plugin, hook)())
            except ValueError as error:  # no specification in it, or a hook that exists
                raise PluginError(str(error)) from error

    def _add(self, plugin: object, record: PluginRecord) -> None:
        """Register one plugin, or leave no trace of it and raise :class:`PluginError`."""
        try:
            self._pluggy.register(plugin, name=record.name)
        except (ValueError, pluggy.PluginValidationError) as error:
            self._remove(record.name)
            raise PluginError(str(error)) from error
        callers = self._pluggy.get_hookcallers(plugin) or []
        unknown = [caller.name for caller in callers if not caller.has_spec() and not _optional(caller, record.name)]
        wrappers = [caller.name for caller in callers if _wraps(caller, record.name)]
        problem = ""
        if unknown:
            problem = f"there is no hook {unknown[0]}"
            if close := difflib.get_close_matches(unknown[0], self._hooks(), n=1):
                problem += f"; did you mean {close[0]}?"
        elif wrappers:
            problem = f"{wrappers[0]} is a hook wrapper; every hook here takes plain implementations only"
        elif not callers:
            problem = "it implements no hook; mark its functions with torch_neuronx.hookspecs.hookimpl"
        if problem:
            self._remove(record.name)
            raise PluginError(problem)
        self._remember(replace(record, hooks=tuple(sorted(caller.name for caller in callers))))

    def _hooks(self) -> list[str]:
        return [name for name, caller in vars(self._pluggy.hook).items() if caller.has_spec()]

    def _remove(self, name: str) -> None:
        if self._pluggy.has_plugin(name):
            self._pluggy.unregister(name=name)

    def _drop(self, name: str, reason: str, error: BaseException) -> None:
        with self._lock:
            self._remove(name)
            self._forget(name)
            warning = f"The {self._describe(name)} was left out: {reason}"
            for key, record in self._records.items():
                if record.name == name and record.state is PluginState.LOADED:
                    self._records[key] = replace(record, state=PluginState.SKIPPED, reason=reason, hooks=())
        _warn(warning, error)

    def _forget(self, name: str) -> None:
        self._results = {key: result for key, result in self._results.items() if key[1] != name}
        self._refresh()

    def _forget_derived(self) -> None:
        self._kernels = {}
        self._generation = next(_generations)

    def _refresh(self) -> None:
        self._forget_derived()
        self._observe_with(
            (
                implementation.plugin_name,
                implementation.function if implementation.argnames else _without_event(implementation.function),
            )
            for implementation in self._pluggy.hook.torch_neuronx_observe.get_hookimpls()
        )

    def _observe_with(self, observers: Iterable[tuple[str, Callable[[Event], object]]]) -> None:
        self._observers = tuple(observers)
        self._watched = any(name != BUILTIN for name, _ in self._observers)

    def _remember(self, record: PluginRecord) -> None:
        self._records[record.name, record.distribution] = record

    def _describe(self, name: str) -> str:
        for record in self._records.values():
            if record.name == name and record.state is PluginState.LOADED:
                return str(record)
        return f"plugin {name!r}"

    def _implementations(self, hook: str) -> list[pluggy.HookImpl]:
        self.load()
        if self._conflict is not None:
            raise self._conflict
        caller = getattr(self._pluggy.hook, hook, None)
        return [] if caller is None else caller.get_hookimpls()

    def _call(self, hook: str, convert: Callable[[Any], Any], arguments: Mapping[str, object]) -> list[tuple[str, Any]]:
        return [
            (implementation.plugin_name, result)
            for implementation in self._implementations(hook)
            for result in self._ask(implementation, hook, convert, arguments)
        ]

    def _ask(
        self,
        implementation: pluggy.HookImpl,
        hook: str,
        convert: Callable[[Any], Any],
        arguments: Mapping[str, object],
    ) -> list[Any]:
        """Return the one result of an implementation, or nothing if it raised and its plugin was left out."""
        name = implementation.plugin_name
        values = [arguments[argument] for argument in implementation.argnames]
        try:
            if arguments:
                return [convert(implementation.function(*values))]
            # Answers to hooks without arguments are kept: a runtime, say, has state and must stay one object.
            with self._lock:
                if (hook, name) not in self._results:
                    self._results[hook, name] = convert(implementation.function())
                return [self._results[hook, name]]
        except Exception as error:
            if name == BUILTIN:
                raise
            self._drop(name, f"{hook} raised {_reason(error)}", error)
            return []

    def _named(self, hook: str, kind: type[Any], attribute: str, noun: str) -> dict[str, Any]:
        def checked(items: Iterable[object]) -> tuple[object, ...]:
            items = tuple(items)
            for item in items:
                if not isinstance(item, kind):
                    raise PluginError(f"{item!r} is no {kind.__name__}")
            return items

        found: dict[str, Any] = {}
        owners: dict[str, str] = {}
        for plugin, items in self._call(hook, checked, {}):
            for item in items:
                name = getattr(item, attribute)
                if name in found:
                    raise DuplicatePluginNameError(
                        f"Two plugins register a {noun} named {name!r}: the {self._describe(owners[name])} and "
                        f"the {self._describe(plugin)}. Leave one out with {config.DISABLE_PLUGINS.name}={plugin}."
                    )
                found[name], owners[name] = item, plugin
        return found


@cache
def manager() -> PluginManager:
    """Return the process's plugin manager."""
    return PluginManager()


def notify(event: Event) -> None:
    """Hand ``event`` to the observers of the process's plugin manager."""
    manager().notify(event)


def _record_of(entry_point: EntryPoint) -> PluginRecord:
    distribution = entry_point.dist
    name, version = ("", "") if distribution is None else (distribution.name, distribution.version)
    return PluginRecord(entry_point.name, name, version, entry_point.value, PluginState.LOADED)


def _reason(error: BaseException) -> str:
    return str(error) if isinstance(error, PluginError) else f"{type(error).__name__}: {error}"


def _warn(text: str, error: BaseException) -> None:
    warning = PluginWarning(f"{text}. `torch-neuronx plugins` lists every plugin.")
    warning.__cause__ = error
    warnings.warn(warning, stacklevel=4)


def _normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _module_of(plugin: object) -> str:
    module = inspect.getmodule(plugin if inspect.ismodule(plugin) or inspect.isclass(plugin) else type(plugin))
    return "an unknown module" if module is None else module.__name__


def _without_event(function: Callable[[], object]) -> Callable[[Event], object]:
    return lambda _: function()


def _optional(caller: pluggy.HookCaller, plugin: str) -> bool:
    return all(impl.optionalhook for impl in caller.get_hookimpls() if impl.plugin_name == plugin)


def _wraps(caller: pluggy.HookCaller, plugin: str) -> bool:
    return any(impl.wrapper or impl.hookwrapper for impl in caller.get_hookimpls() if impl.plugin_name == plugin)
