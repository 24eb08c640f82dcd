"""Where results are, and how they are read."""

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
ABOUT = "about.json"
"""The file that says what the results of a folder were made with."""


def result_file(folder: Path, dtype: str) -> Path:
    """The file of one dtype's results."""
    return folder / f"{dtype}.jsonl"


def read_results(path: Path) -> dict[str, dict[str, Any]]:
    """Results by entry; the later of two lines counts, and a last line that a stopped run cut off does not."""
    if not path.exists():
        return {}
    text = path.read_text()
    lines = text[: text.rfind("\n") + 1].splitlines()
    return {result["entry"]: result for result in map(json.loads, lines)}
