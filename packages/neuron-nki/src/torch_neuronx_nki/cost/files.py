"""Estimates the kernels of a file on its examples."""

from pathlib import Path

from torch_neuronx_nki.cost.estimate import Estimate, estimate
from torch_neuronx_nki.trace import Event
from torch_neuronx_nki.verifier.files import examples_of, loaded


def estimate_file(
    path: Path, *, kernel: str | None = None, target: str | None = None, shapes_only: bool = False
) -> list[Estimate]:
    """Run the examples of ``path`` and estimate each.

    Raises :class:`NkiLaunchError` where the file cannot be loaded, and what a kernel raises.
    """
    estimates = []
    with loaded(path) as module:
        for example in examples_of(module):
            if kernel is None or example.kernel.func.__name__ == kernel:
                events: list[Event] = []
                example.run(target=target, observers=(events.append,), shapes_only=shapes_only)
                estimates.append(estimate(events))
    return estimates
