"""The table of op statuses: one list that fallback, the command line, the documentation and the tests read.

Names are the dispatcher's: ``aten::add.Tensor``, and ``aten::eye`` for the default overload. The shipped table is made
by ``python -m tools.op_statuses`` from what torch-mlir lowers to StableHLO; a plugin may put a live one in its place.
Needs no torch.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from torch_neuronx.op_status import OpRecord, OpStatus

__all__ = ["SHIPPED_TABLE", "OpRecord", "OpStatus", "current_table", "load_shipped_table", "shipped_metadata"]

SHIPPED_TABLE = Path(__file__).with_name("statuses.json")
_FORMAT = 1


@cache
def load_shipped_table() -> Mapping[str, OpRecord]:
    """Return the table that was shipped with this version.

    Raises:
        ValueError: the file is of another format than this version reads.
    """
    ops = _document()["ops"]
    return MappingProxyType({name: OpRecord(OpStatus(row["status"]), row["reason"]) for name, row in ops.items()})


def shipped_metadata() -> Mapping[str, Any]:
    """Return what the shipped table was made from: versions, the command and the date."""
    metadata: dict[str, Any] = _document()["metadata"]
    return MappingProxyType(metadata)


def current_table() -> Mapping[str, OpRecord]:
    """Return the live table that an installed plugin has for the target in use, or else the shipped one."""
    from torch_neuronx import plugins
    from torch_neuronx.runtimes.select import select_device_runtime

    table = plugins.manager().op_statuses(select_device_runtime().layout().target)
    return load_shipped_table() if table is None else table


def _document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(SHIPPED_TABLE.read_text(encoding="utf-8"))
    if document["format"] != _FORMAT:
        raise ValueError(
            f"{SHIPPED_TABLE} is of format {document['format']}; this version reads {_FORMAT}. Reinstall torch-neuronx."
        )
    return document
