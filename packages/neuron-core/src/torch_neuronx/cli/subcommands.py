"""Sub-commands that other distributions add through the entry-point group ``torch_neuronx.cli``."""

from importlib.metadata import EntryPoint
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from torch_neuronx import installed
from torch_neuronx.cli.output import print_error

ENTRY_POINT_GROUP = "torch_neuronx.cli"


class GroupWithInstalledCommands(TyperGroup):
    """A group whose help lists the installed sub-commands, and that imports one only when it is used."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the group's own commands, then those of the installed ones."""
        own = super().list_commands(ctx)
        return [*own, *sorted(set(_entry_points()) - set(own))]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command; for an installed one something to list, which :meth:`resolve_command` replaces."""
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        entry_point = _entry_points().get(cmd_name)
        return None if entry_point is None else TyperCommand(cmd_name, help=f"Commands of {_origin(entry_point)}.")

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command to run, importing it if another distribution has it."""
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and super().get_command(ctx, name) is None:
            command = _load(_entry_points()[name])
        return name, command, rest


def _entry_points() -> dict[str, EntryPoint]:
    return {entry_point.name: entry_point for entry_point in installed.entry_points(ENTRY_POINT_GROUP)}


def _origin(entry_point: EntryPoint) -> str:
    return entry_point.value if entry_point.dist is None else entry_point.dist.name


def _load(entry_point: EntryPoint) -> Any:
    try:
        app = entry_point.load()
        if not isinstance(app, typer.Typer):
            raise TypeError(f"{entry_point.value} is no typer app but {app!r}")
    except Exception as error:  # another distribution's code: name it, whatever it raised
        print_error(
            f"The command {entry_point.name!r} of {_origin(entry_point)} cannot be loaded: "
            f"{type(error).__name__}: {error}. Reinstall or uninstall {_origin(entry_point)}."
        )
        raise typer.Exit(1) from error
    return typer.main.get_command(app)
