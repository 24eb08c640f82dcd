"""``torch-neuronx explain``."""

from collections.abc import Sequence
from pathlib import Path

from torch_neuronx import extras
from torch_neuronx.cli.output import print_error


def run(
    *,
    script: Path,
    arguments: Sequence[str],
    json: Path | None,
    html: Path | None,
    reproductions: Path | None,
) -> int:
    """Run the script, report on everything that was compiled in it, and return the script's exit code."""
    if not script.is_file():
        print_error(f"There is no program {str(script)!r}. Give the path of a Python file.")
        return 2
    program = extras.load("compile", "torch_neuronx_compile.explain.script", "torch-neuronx explain")
    explanation, code = program.explain_script(script, arguments)
    if json is not None:
        json.write_text(explanation.json() + "\n", encoding="utf-8")
    if html is not None:
        explanation.html(html)
    if reproductions is not None:
        explanation.write_reproductions(reproductions)
    print(explanation.text())
    return int(code)
