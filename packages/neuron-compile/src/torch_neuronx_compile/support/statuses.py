"""The core's operator table with what compiled graphs do with each operator. Needs no torch."""

from collections.abc import Mapping
from dataclasses import replace

from torch_neuronx.op_status import OpRecord
from torch_neuronx.ops.statuses import load_shipped_table
from torch_neuronx_compile.support.table import Support, shipped

_SORTED = "where the sorted dimension has more than 16384 elements"
_LIMITED = {
    "aten::sort": _SORTED,
    "aten::sort.stable": _SORTED,
    "aten::argsort": _SORTED,
    "aten::argsort.stable": _SORTED,
    "aten::topk": "where k is 16384 or more",
    "aten::kthvalue": "where k is 16384 or more",
    "aten::_grouped_mm": "the device has no grouped matrix product",
}


def live_table() -> Mapping[str, OpRecord] | None:
    """Return the table, or ``None`` where the shipped one of this package was made for another installation."""
    rows = shipped()
    if not rows:
        return None
    return {
        name: record if breaks is None else replace(record, breaks=breaks)
        for name, record in load_shipped_table().items()
        for breaks in (_breaks(name, rows),)
    }


def _breaks(name: str, rows: Mapping[str, Support]) -> str | None:
    packet, dot, overload = name.partition(".")
    name = packet.removesuffix("_") + dot + overload
    if name in _LIMITED:
        return _LIMITED[name]
    support = rows.get(name)
    if support is None:
        return None
    if support.forward is not None:
        return support.forward
    return "" if support.backward is None else f"where its gradient is needed, and {support.backward}"
