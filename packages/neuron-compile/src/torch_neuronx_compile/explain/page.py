"""An explanation as one HTML page that needs nothing else."""

from pathlib import Path

import jinja2

from torch_neuronx_compile.explain.report import Explanation
from torch_neuronx_compile.explain.text import describe, summary

TEMPLATE = Path(__file__).with_name("page.html.jinja")

_BAR = 420.0
"""Width of the longest bar, in the units of the drawing."""


def write(explanation: Explanation, path: Path) -> Path:
    """Write ``explanation`` to ``path`` and return it."""
    path.write_text(render(explanation), encoding="utf-8")
    return path


def render(explanation: Explanation) -> str:
    """Return the page; whatever comes from the program is escaped."""
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"), {"describe": describe})
    longest = max(explanation.seconds.values(), default=0.0)
    bars = [
        (stage, seconds, _BAR * seconds / longest if longest else 0.0) for stage, seconds in explanation.seconds.items()
    ]
    return template.render(explanation=explanation, summary=summary(explanation), bars=bars)
