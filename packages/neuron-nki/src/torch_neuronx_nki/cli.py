"""``torch-neuronx nki``: check the kernels of a file, and estimate what they cost."""

from pathlib import Path
from typing import Annotated

import typer

from torch_neuronx.cli.output import print_error, print_json, print_rows
from torch_neuronx_nki.errors import NkiLaunchError

app = typer.Typer(
    help="Check kernels and estimate what they cost, without a chip.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def commands() -> None:
    """Check kernels and estimate what they cost, without a chip."""


File = Annotated[Path, typer.Argument(help="A Python file with kernels and EXAMPLES or example().", show_default=False)]
Target = Annotated[str | None, typer.Option("--target", help="The chip: trn2 or trn3.", show_default=False)]
Name = Annotated[str | None, typer.Option("--kernel", help="Only the kernel of this name.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ShapesOnly = Annotated[bool, typer.Option("--shapes-only", help="Follow shapes and compute nothing.")]


@app.command()
def check(
    file: File, target: Target = None, kernel: Name = None, shapes_only: ShapesOnly = False, as_json: Json = False
) -> None:
    """Run the kernels of a file on its examples and print the rules that they break.

    The exit code is 1 where a rule is broken, and 2 where a kernel cannot be run.
    """
    from torch_neuronx_nki.verifier.files import check_file
    from torch_neuronx_nki.verifier.findings import Severity, plain

    try:
        results = check_file(file, kernel=kernel, target=target, shapes_only=shapes_only)
    except NkiLaunchError as error:
        print_error(str(error))
        raise typer.Exit(2) from error
    findings = [finding for result in results for finding in result.findings]
    failed = [result for result in results if result.error]
    missing = [result.kernel for result in results if not result.ran]
    ran = [result.kernel for result in results if result.ran]
    if as_json:
        print_json(
            {
                "file": str(file),
                "kernels": ran,
                "without_example": missing,
                "findings": [finding.as_dict() for finding in findings],
                "errors": [{"kernel": result.kernel, "error": result.error} for result in failed],
            }
        )
    else:
        if findings:
            rows = [
                {
                    "line": "" if finding.source is None else f"{Path(finding.source.file).name}:{finding.source.line}",
                    "rule": finding.code,
                    "severity": {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "note"}[
                        finding.severity
                    ],
                    "kernel": finding.kernel,
                    "what": finding.message,
                    "limit": str(plain(finding.limit)),
                    "actual": str(plain(finding.actual)),
                    "hint": finding.hint,
                }
                for finding in findings
            ]
            print_rows(rows, ("line", "rule", "severity", "kernel", "what", "limit", "actual", "hint"))
        for result in failed:
            print_error(f"{result.kernel} did not run to its end: {result.error}")
        for name in missing:
            print_error(f"{name} has no example. Add it to EXAMPLES or example() of the file.")
        print(f"{len(ran)} run{'s' * (len(ran) != 1)} of kernels, {len(findings)} finding{'s' * (len(findings) != 1)}")
    if failed or not ran:
        if not ran and not as_json:
            print_error("Nothing was run.")
        raise typer.Exit(2)
    raise typer.Exit(int(any(finding.severity is not Severity.NOTE for finding in findings)))


@app.command()
def cost(
    file: File,
    target: Target = None,
    kernel: Name = None,
    shapes_only: ShapesOnly = False,
    as_json: Json = False,
    trace: Annotated[
        Path | None, typer.Option("--trace", help="Write a trace for Perfetto to this file.", show_default=False)
    ] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Write a page to this file.", show_default=False)] = None,
) -> None:
    """Estimate how long the kernels of a file take on a chip, and what bounds them.

    Nothing is measured. With several kernels, --trace and --html put the kernel's name into the names of their files.
    """
    from torch_neuronx.errors import NeuronError
    from torch_neuronx_nki.cost import chrome, page, text
    from torch_neuronx_nki.cost.files import estimate_file

    try:
        estimates = estimate_file(file, kernel=kernel, target=target, shapes_only=shapes_only)
    except NeuronError as error:
        print_error(str(error))
        raise typer.Exit(2) from error
    if not estimates:
        print_error(f"{file} has no example to run. Add EXAMPLES or example().")
        raise typer.Exit(2)
    if as_json:
        print_json([estimate.as_dict() for estimate in estimates])
    for number, estimate in enumerate(estimates):
        if not as_json:
            print("\n".join(text.summary(estimate)))
            print_rows(text.lanes(estimate), ("core", "engine", "instructions", "busy", "share"))
            print_rows(text.lines(estimate), ("line", "engine", "instructions", "busy"))
        for path, write in ((trace, chrome.write), (html, page.write)):
            if path is not None:
                named = f"{path.stem}.{number}.{estimate.timeline.kernel}{path.suffix}"
                write(estimate, path if len(estimates) == 1 else path.with_name(named))
    if not as_json:
        print(text.sources(estimates[0]))
