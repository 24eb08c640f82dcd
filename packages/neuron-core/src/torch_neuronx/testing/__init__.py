"""For tests of programs, kernels and plugins on the device; used by the project's own tests.

- `compare_with_cpu` runs a function on both and compares everything that can be seen.
- `pytest_plugin` brings fixtures and a marker; pytest finds it by itself.
- `conformance` has suites that a runtime or a target of another package subclasses.
- `isolation` runs cases in a process of their own, so that a crash costs one case.

Names load on first use, so that importing this package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch_neuronx.testing.compare import Comparison, CpuRunError, Values, compare_with_cpu
    from torch_neuronx.testing.conformance import RuntimeConformance, TargetConformance
    from torch_neuronx.testing.isolation import IsolatedWorker, Outcome, Verdict, serve
    from torch_neuronx.testing.state import capture_state, state_differences

_NAMES = {
    "Comparison": "compare",
    "CpuRunError": "compare",
    "IsolatedWorker": "isolation",
    "Outcome": "isolation",
    "RuntimeConformance": "conformance",
    "TargetConformance": "conformance",
    "Values": "compare",
    "Verdict": "isolation",
    "capture_state": "state",
    "compare_with_cpu": "compare",
    "serve": "isolation",
    "state_differences": "state",
}

__all__ = [
    "Comparison",
    "CpuRunError",
    "IsolatedWorker",
    "Outcome",
    "RuntimeConformance",
    "TargetConformance",
    "Values",
    "Verdict",
    "capture_state",
    "compare_with_cpu",
    "serve",
    "state_differences",
]


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(import_module(f"{__name__}.{_NAMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
