"""How commands print: JSON, a table for people, or plain columns for other programs."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

STYLES = {
    "ok": "green",
    "native": "green",
    "loaded": "green",
    "note": "cyan",
    "fallback": "yellow",
    "warning": "yellow",
    "disabled": "yellow",
    "problem": "bold red",
    "unsupported": "red",
    "skipped": "red",
    "error": "bold red",
}
"""Colour of the words that say how something is."""


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_rows(rows: Sequence[Mapping[str, str]], columns: Sequence[str]) -> None:
    """Print rows: a table on a terminal, elsewhere a line each with tabs between the columns, never cut or wrapped."""
    if not sys.stdout.isatty():
        print("\t".join(columns))
        for row in rows:
            print("\t".join(" ".join(row[column].split()) for column in columns))
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(row[column], style=STYLES.get(row[column], "")) for column in columns))
    Console().print(table)


def print_error(text: str) -> None:
    """Print what went wrong to stderr."""
    print(text, file=sys.stderr)
