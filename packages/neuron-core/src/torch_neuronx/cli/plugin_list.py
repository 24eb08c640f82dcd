"""``torch-neuronx plugins``."""

import warnings
from dataclasses import asdict

from torch_neuronx.cli.output import print_error, print_json, print_rows
from torch_neuronx.errors import DuplicatePluginNameError, PluginWarning
from torch_neuronx.plugins import PluginManager, PluginRecord, manager


def inspect_plugins(plugins: PluginManager) -> tuple[tuple[PluginRecord, ...], list[str]]:
    """Load the plugins and ask each for what it registers.

    Returns what became of every one, and what is wrong between them (two that claim one name).
    """
    conflicts = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PluginWarning)  # the records say the same
        for ask in (
            plugins.targets,
            plugins.runtimes,
            plugins.compilers,
            plugins.lowerings,
            lambda: plugins.kernels(""),
        ):
            try:
                ask()
            except DuplicatePluginNameError as error:
                conflicts.append(str(error))
    return plugins.records(), list(dict.fromkeys(conflicts))


def run(*, as_json: bool) -> int:
    """Print the plugins; return 1 if two claim one name."""
    records, conflicts = inspect_plugins(manager())
    if as_json:
        print_json({"plugins": [asdict(record) for record in records], "conflicts": conflicts})
    else:
        shown = [asdict(r) | {"state": r.state.value, "why": r.reason, "hooks": ", ".join(r.hooks)} for r in records]
        print_rows(shown, ["name", "distribution", "version", "state", "hooks", "why"])
        for conflict in conflicts:
            print_error(conflict)
    return 1 if conflicts else 0
