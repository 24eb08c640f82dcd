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


def run(*, pattern: str, status: OpStatus | None, as_json: bool) -> int:
    """Print the records; return 1 if there are none."""
    found = search(current_table(), pattern, status)
    rows = [{"name": name, "status": r.status.value, "reason": r.reason} for name, r in found.items()]
    if as_json:
        print_json(rows)
    elif rows:
        print_rows(rows, ["name", "status", "reason"])
    if not rows:
        print_error(f"No operator matches {pattern!r}{f' with status {status.value}' if status else ''}.")
    return 0 if rows else 1
