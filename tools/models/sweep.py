"""Runs every model in a process of its own and writes what happened, as data and as a page.

pip install transformers diffusers
python -m tools.models.sweep              # all; results in tools/models/results.json, the page docs/models.md
python -m tools.models.sweep bert llama   # these only
python -m tools.models.sweep --page       # only write the page
"""

import json
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from tools.models.zoo import ENTRIES

RESULTS = Path(__file__).parent / "results.json"
PAGE = Path(__file__).parents[2] / "docs" / "models.md"
TIME_LIMIT = 1800.0

_HEADER = """# Models

Whole models with random weights and reduced sizes, on the device: the weights move there, a training step runs forward
and backward, an AdamW step is compiled, and after each of these every number is compared with the CPU's. "One graph"
says whether the model was compiled with `fullgraph=True`, which is tried wherever Dynamo captures it whole on the CPU.
`generate()` with a static cache compiles one graph for the prompt and one for all tokens.

    python -m tools.models.sweep

"""


def run(name: str) -> dict[str, Any]:
    """Run one model and return its record."""
    command = [sys.executable, "-m", "tools.models.run", name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT)
    except subprocess.TimeoutExpired:
        return {"name": name, "source": ENTRIES[name].source, "error": f"took longer than {TIME_LIMIT:g} s"}
    try:
        record: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, json.JSONDecodeError):
        return {"name": name, "source": ENTRIES[name].source, "error": f"ended with {done.returncode}"}
    return record


def page(results: dict[str, Any]) -> str:
    """Return the page of the results."""
    about = results["about"]
    rows = [
        "| model | code | loads | one graph | forward | backward | AdamW | generate | graphs | fallbacks | off by |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    notes = []
    for name in ENTRIES:
        record = results["models"].get(name)
        if record is None:
            continue
        generates = record.get("generates")
        cells = [
            name, record["source"], _mark(record.get("loads")), _mark(record.get("fullgraph")),
            _mark(record.get("forward")), _mark(record.get("backward")), _mark(record.get("step")),
            "" if generates is None else _mark(generates), str(record.get("graphs", "")),
            str(len(record.get("fallbacks", []))), f"{record.get('largest_difference', 0.0):.1e}",
        ]  # fmt: skip
        rows.append(f"| {' | '.join(cells)} |")
        for what, text in (("not one graph", record.get("broken_at")), ("failed", record.get("error"))):
            if text:
                notes.append(f"- {name}, {what}: {text}")
    versions = ", ".join(f"{package} {found}" for package, found in about["versions"].items())
    body = "\n".join(rows)
    told = "\n" + "\n".join(notes) + "\n" if notes else ""
    foot = f"Differences are relative to the largest number of each tensor. Made with {versions}."
    return f"{_HEADER}{body}\n{told}\n{foot}\n"


def _mark(value: Any) -> str:
    return "yes" if value else "no"


def main(
    names: Annotated[list[str] | None, typer.Argument(help="models, by default all")] = None,
    page_only: Annotated[bool, typer.Option("--page", help="run nothing")] = False,
) -> None:
    """Run the models and write the results."""
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"models": {}}
    for name in [] if page_only else names or list(ENTRIES):
        record = run(name)
        results["models"][name] = record
        print(f"{name}: {record.get('error') or 'equal to the CPU'}", flush=True)
    if not page_only:
        packages = ("torch", "torch-mlir", "jaxlib", "transformers", "diffusers")
        versions = {package: version(package) for package in packages}
        results["about"] = {"versions": versions, "finished": datetime.now(UTC).date().isoformat()}
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    PAGE.write_text(page(results))


if __name__ == "__main__":
    typer.run(main)
