"""Compares random programs between the CPU and the compiled device, without end or for a number of cases.

    python -m tools.fuzz.compiled_programs --cases 10000 --seed 1
    python -m tools.fuzz.compiled_programs --cases 500 --gradients

Every case is compiled with graph breaks allowed. What differs or raises is printed, counted by its first line, and
written with its source to the report; the exit code says whether everything agreed. `results.json` is what runs found.
"""

import json
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from hypothesis import HealthCheck, Phase, given, seed, settings

sys.path.insert(0, str(Path(__file__).parents[2] / "packages" / "neuron-compile"))
from tests.random_programs import Program, disagreement, programs  # type: ignore[import-not-found]


@dataclass
class Report:
    """What a run found."""

    cases: int = 0
    graphs: int = 0
    breaks: int = 0
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0


def compile_with_breaks(function: Any) -> Any:
    """Compile as users do: what has no lowering runs in eager mode."""
    return torch.compile(function, backend="neuron")


def check(program: Program, report: Report) -> None:
    """Run one case and note what it shows."""
    from torch_neuronx.neuron_dynamo_backend import get_dynamo_metrics, reset_dynamo_metrics

    torch._dynamo.reset()
    reset_dynamo_metrics()
    torch._dynamo.utils.counters.clear()
    report.cases += 1
    try:
        found = disagreement(program, compile_with_breaks)
    except Exception as error:  # whatever a case raises is a finding
        found = f"{type(error).__name__}: {str(error).splitlines()[0]}\n{program.source}{program.inputs}"
    report.graphs += len(get_dynamo_metrics())
    report.breaks += sum(torch._dynamo.utils.counters["graph_break"].values())
    if found:
        report.failures.append(found)
        print(f"case {report.cases}: {found}\n", flush=True)


def main(
    cases: Annotated[int, typer.Option(help="how many programs")] = 10_000,
    start: Annotated[int, typer.Option("--seed", help="the same seed gives the same programs")] = 0,
    gradients: Annotated[bool, typer.Option(help="programs with gradients, all in float32")] = False,
    output: Annotated[Path | None, typer.Option(help="JSON report")] = None,
) -> None:
    """Run the cases."""
    report = Report()
    began = time.monotonic()

    # One seed per thousand cases: hypothesis remembers what it generated, and grows.
    for block in range((cases + 999) // 1000):

        @seed(start * 1_000_003 + block)
        @settings(
            max_examples=min(1000, cases - 1000 * block), deadline=None, database=None, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(programs(gradients=gradients))
        def run(program: Program) -> None:
            check(program, report)

        run()
    report.seconds = round(time.monotonic() - began, 1)
    print(f"{report.cases} programs, {report.graphs} graphs, {report.breaks} breaks, {report.seconds:.0f} s")
    for what, count in Counter(failure.splitlines()[0] for failure in report.failures).most_common():
        print(f"{count:6} {what}")
    if output is not None:
        output.write_text(json.dumps(asdict(report), indent=1) + "\n")
    raise typer.Exit(int(bool(report.failures)))


if __name__ == "__main__":
    typer.run(main)
