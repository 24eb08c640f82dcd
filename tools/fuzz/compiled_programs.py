"""Compares random programs between the CPU and the compiled device, without end or for a number of cases.

    python -m tools.fuzz.compiled_programs --cases 10000 --seed 1
    python -m tools.fuzz.compiled_programs --cases 500 --gradients
    python -m tools.fuzz.compiled_programs --minutes 20 --breaks --record

Every case is compiled with graph breaks allowed. What differs or raises is printed, counted by its first line, and
written with its source to the report; the exit code says whether everything agreed. What raises on the CPU as well,
compiled with PyTorch's own `aot_eager`, is counted and written by itself: PyTorch refuses it. Another result is never
excused. `results.json` is what runs found: `--record` adds a run to it.
"""

import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from hypothesis import HealthCheck, Phase, given, seed, settings

sys.path.insert(0, str(Path(__file__).parents[2] / "packages" / "neuron-compile"))
from tests.random_programs import (  # type: ignore[import-not-found]
    Program,
    all_agree,
    disagreement,
    programs,
    pytorch_refuses,
)

RESULTS = Path(__file__).parent / "results.json"
_BLOCK = 250
_CALLED = re.compile(r"(?:torch|F|v\d+|\)|\])\.([a-z]\w*)\(")


@dataclass
class Report:
    """What a run found."""

    command: str = ""
    date: str = ""
    cases: int = 0
    graphs: int = 0
    breaks: int = 0
    functions: dict[str, int] = field(default_factory=dict)
    """Names of functions, methods and symbols of operators, and in how many statements they stand."""
    inputs: dict[str, int] = field(default_factory=dict)
    """Dtypes and layouts of inputs, and how many there were."""
    failures: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """What PyTorch itself refuses to compile, on the CPU as well."""
    seconds: float = 0.0


def compile_with_breaks(function: Any) -> Any:
    """Compile as users do: what has no lowering runs in eager mode."""
    return torch.compile(function, backend="neuron")


def check(programs: Sequence[Program], report: Report) -> None:
    """Run cases as one function, each by itself where that does not agree or breaks, and note what they show."""
    report.cases += len(programs)
    for program in programs:
        _count(program, report)
    if len(programs) > 1:
        try:
            agree, breaks = _compiled(partial(all_agree, programs, compile_with_breaks), report)
        except Exception:  # of one of them: each tells below
            agree, breaks = False, 0
        if agree and not breaks:
            return
    for number, program in enumerate(programs):
        try:
            found, breaks = _compiled(partial(disagreement, program, compile_with_breaks), report)
        except Exception as error:  # whatever a case raises is a finding
            found, breaks = f"{type(error).__name__}: {' '.join(str(error).split())[:500]}", 0
            found = f"{found}\n{program.source}{program.inputs}"
            refused = pytorch_refuses(program, error)
        else:
            refused = False
        report.breaks += breaks
        if found:
            (report.refused if refused else report.failures).append(found)
            whose = ", PyTorch itself refuses" if refused else ""
            print(f"case {report.cases - len(programs) + number + 1}{whose}: {found}\n", flush=True)


def _compiled(run: Callable[[], Any], report: Report) -> tuple[Any, int]:
    """Return what ``run`` gives and how often graphs broke."""
    from torch_neuronx.neuron_dynamo_backend import get_dynamo_metrics, reset_dynamo_metrics

    torch._dynamo.reset()
    reset_dynamo_metrics()
    torch._dynamo.utils.counters.clear()
    found = run()
    report.graphs += len(get_dynamo_metrics())
    return found, sum(torch._dynamo.utils.counters["graph_break"].values())


def _count(program: Program, report: Report) -> None:
    for statement in program.statements:
        for name in _CALLED.findall(statement):
            report.functions[name] = report.functions.get(name, 0) + 1
    for entry in program.inputs:
        empty = " empty" if 0 in entry.shape else " 0-d" if not entry.shape else ""
        kind = f"{str(entry.dtype).removeprefix('torch.')} {entry.layout.value}{empty}"
        report.inputs[kind] = report.inputs.get(kind, 0) + 1


def main(
    cases: Annotated[int, typer.Option(help="how many programs")] = 10_000,
    start: Annotated[int, typer.Option("--seed", help="the same seed gives the same programs")] = 0,
    gradients: Annotated[bool, typer.Option(help="programs with gradients, all in float32")] = False,
    breaks: Annotated[bool, typer.Option(help="programs with statements that break graphs")] = False,
    together: Annotated[int, typer.Option(help="programs that are compiled as one function")] = 1,
    minutes: Annotated[float | None, typer.Option(help="stop after so long, at the end of a block of cases")] = None,
    output: Annotated[Path | None, typer.Option(help="JSON report")] = None,
    record: Annotated[bool, typer.Option(help="add the run to results.json")] = False,
) -> None:
    """Run the cases."""
    report = Report("python -m tools.fuzz.compiled_programs " + " ".join(sys.argv[1:]), f"{datetime.now(UTC):%Y-%m-%d}")
    began = time.monotonic()
    waiting: list[Program] = []

    # One seed per block: hypothesis remembers what it generated, and grows.
    for block in range((cases + _BLOCK - 1) // _BLOCK):
        if minutes is not None and time.monotonic() - began > 60 * minutes:
            break

        @seed(start * 1_000_003 + block)
        @settings(
            max_examples=min(_BLOCK, cases - _BLOCK * block), deadline=None, database=None, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(programs(gradients=gradients, breaks=breaks))
        def run(program: Program) -> None:
            waiting.append(program)
            if len(waiting) == together:
                check(waiting, report)
                waiting.clear()

        run()
        if waiting:
            check(waiting, report)
            waiting.clear()
        found = f"{len(report.failures)} failures, {len(report.refused)} refused by PyTorch itself"
        print(f"{report.cases} cases, {found}, {time.monotonic() - began:.0f} s", flush=True)
        report.seconds = round(time.monotonic() - began, 1)
        if output is not None:
            output.write_text(json.dumps(asdict(report), indent=1) + "\n")
    print(f"{report.cases} programs, {report.graphs} graphs, {report.breaks} breaks, {report.seconds:.0f} s")
    for whose, told in (("", report.failures), ("PyTorch itself refuses: ", report.refused)):
        for what, count in Counter(text.splitlines()[0] for text in told).most_common():
            print(f"{count:6} {whose}{what}")
    if record:
        RESULTS.write_text(json.dumps([*json.loads(RESULTS.read_text()), asdict(report)], indent=1) + "\n")
    raise typer.Exit(int(bool(report.failures)))


if __name__ == "__main__":
    typer.run(main)
