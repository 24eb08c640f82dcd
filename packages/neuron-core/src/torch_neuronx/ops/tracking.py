"""Which operators ran on the device, and which fell back to the CPU.

Tracking executed operators is off until :func:`clear_op_tracking` is called (or ``TORCH_NEURONX_TRACK_OPS`` is set) and
costs nothing while it is off. Fallbacks are counted always.
"""

from collections import Counter
from typing import ClassVar

from torch_neuronx import _C
from torch_neuronx.device._opening import without_overload


class _Baseline:
    fallbacks: ClassVar[Counter[str]] = Counter()


def clear_op_tracking() -> None:
    """Forget what ran so far, and record from here on."""
    _C.clear_op_tracking()
    _Baseline.fallbacks = Counter(_C.fallback_counts())
    _C.set_op_tracking(True)


def stop_op_tracking() -> None:
    """Stop recording executed operators; what was recorded stays."""
    _C.set_op_tracking(False)


def get_executed_ops() -> list[str]:
    """Return the operators that reached the device, in order, one entry per call: ``["aten::mm", "aten::add"]``."""
    return list(_C.executed_ops())


def get_fallback_ops() -> list[str]:
    """Return the operators that ran on the CPU instead, sorted, one entry per call since the last clear."""
    since = Counter(_C.fallback_counts()) - _Baseline.fallbacks
    return sorted(without_overload(name) for name, count in since.items() for _ in range(count))
