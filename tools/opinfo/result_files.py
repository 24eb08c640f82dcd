"""Where results are, how they are read, and which are still to be made."""

import argparse
import json
import re
from collections.abc import Callable, Sequence
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


def pending(
    path: Path, names: Sequence[str], options: argparse.Namespace, passed: Callable[[dict[str, Any]], bool]
) -> list[tuple[str, int]]:
    """Return the entries, with their places among ``names``, that a sweep has to run; forget their old results.

    ``options`` are a sweep's: ``only`` chooses entries, ``fresh`` runs all of these again, ``failed`` those that
    ``passed`` denies.
    """
    done = read_results(path)
    pattern = re.compile(options.only)
    chosen = {name: index for index, name in enumerate(names) if pattern.search(name)}
    if options.fresh:
        done = {name: result for name, result in done.items() if name not in chosen}
    if options.failed:
        done = {name: result for name, result in done.items() if name not in chosen or passed(result)}
    path.write_text("".join(json.dumps(result) + "\n" for result in done.values()))
    return [(name, index) for name, index in chosen.items() if name not in done]
