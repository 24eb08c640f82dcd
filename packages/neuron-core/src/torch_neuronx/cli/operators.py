"""``torch-neuronx ops``."""

from collections.abc import Mapping
from fnmatch import fnmatchcase

from torch_neuronx.cli.output import print_error, print_json, print_rows
from torch_neuronx.op_status import OpRecord, OpStatus
from torch_neuronx.ops.statuses import current_table


def search(table: Mapping[str, OpRecord], pattern: str, status: OpStatus | None) -> dict[str, OpRecord]:
    """Return the records whose name holds ``pattern``, or matches it as a glob, and that have ``status`` if given."""
    glob = pattern if any(mark in pattern for mark in "*?[") else f"*{pattern}*"
    return {
        name: record
        for name, record in sorted(table.items())
        if fnmatchcase(name, glob) and status in (None, record.status)
    }


def run(*, pattern: str, status: OpStatus | None, compiled: bool, as_json: bool) -> int:
    """Print the records, for compiled graphs with ``compiled``; return 1 if there are none."""
    found = search(current_table(), pattern, status)
    rows = [_compiled_row(name, r) if compiled else _eager_row(name, r) for name, r in found.items()]
    if as_json:
        print_json(rows)
    elif rows:
        print_rows(rows, list(rows[0]))
    if not rows:
        print_error(f"No operator matches {pattern!r}{f' with status {status.value}' if status else ''}.")
    return 0 if rows else 1


def _eager_row(name: str, record: OpRecord) -> dict[str, str]:
    return {"name": name, "status": record.status.value, "reason": record.reason}


def _compiled_row(name: str, record: OpRecord) -> dict[str, str]:
    """Say what a compiled graph does with the operator: compile it, break there, or find out."""
    match record.breaks:
        case None:
            return {"name": name, "compiled": "unknown", "reason": "not tried; a graph that holds it finds out"}
        case "":
            return {"name": name, "compiled": "compiled", "reason": ""}
        case reason:
            return {"name": name, "compiled": "breaks", "reason": reason}
