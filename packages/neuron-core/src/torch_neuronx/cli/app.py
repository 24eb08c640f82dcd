"""The commands. Each one's work is in a module of its own, imported when it runs."""

from pathlib import Path
from typing import Annotated

import typer

from torch_neuronx.cli.subcommands import GroupWithInstalledCommands
from torch_neuronx.op_status import OpStatus

app = typer.Typer(
    cls=GroupWithInstalledCommands,
    help="Look after device neuron: Trainium in PyTorch, or an emulator of it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def doctor(
    verify: Annotated[bool, typer.Option("--verify", help="Also multiply matrices and compare with the CPU.")] = False,
    as_json: Json = False,
) -> None:
    """Check the installation: versions, what matches, what is missing, and how to mend it."""
    from torch_neuronx.cli.doctor import run

    raise typer.Exit(run(verify=verify, as_json=as_json))


@app.command()
def env(as_json: Json = False) -> None:
    """Show every environment variable: value, default, source."""
    from torch_neuronx.cli.variables import run

    raise typer.Exit(run(as_json=as_json))


@app.command(context_settings={"ignore_unknown_options": True})
def explain(
    script: Annotated[Path, typer.Argument(help="A Python program.", show_default=False)],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            help="Its arguments; put those that are options of this command after '--'.", show_default=False
        ),
    ] = None,
    json: Annotated[Path | None, typer.Option("--json", help="Write the report as JSON to this file.")] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Write the report as a page to this file.")] = None,
    reproductions: Annotated[
        Path | None, typer.Option("--reproductions", help="Write a program for each graph to this folder.")
    ] = None,
) -> None:
    """Run a program and report what was compiled in it, what was not, and why; its exit code is the command's."""
    from torch_neuronx.cli.explain import run

    raise typer.Exit(run(script=script, arguments=arguments or [], json=json, html=html, reproductions=reproductions))


@app.command()
def ops(
    pattern: Annotated[
        str, typer.Argument(help="Part of a name, or a glob: 'softmax', 'aten::*conv*'.", show_default=False)
    ] = "",
    status: Annotated[
        OpStatus | None, typer.Option("--status", help="Only operators of this status.", show_default=False)
    ] = None,
    compiled: Annotated[
        bool, typer.Option("--compiled", help="Show what torch.compile does with them: compile, or break the graph.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show what the target does with each ATen operator, and why."""
    from torch_neuronx.cli.operators import run

    raise typer.Exit(run(pattern=pattern, status=status, compiled=compiled, as_json=as_json))


@app.command()
def plugins(as_json: Json = False) -> None:
    """Show every plugin that was found: loaded or skipped, and why."""
    from torch_neuronx.cli.plugin_list import run

    raise typer.Exit(run(as_json=as_json))
