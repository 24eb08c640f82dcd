"""An estimate in words and tables."""

from collections.abc import Mapping
from pathlib import Path

from torch_neuronx_nki.cost.estimate import Estimate
from torch_neuronx_nki.cost.figures.kind import ASSUMED
from torch_neuronx_nki.trace import SourceLocation


def summary(estimate: Estimate) -> list[str]:
    """Return a few sentences; the first line names the kernel."""
    timeline = estimate.timeline
    cores = f"{timeline.lnc} core{'s' * (timeline.lnc > 1)} of {timeline.target}"
    lines = [
        f"{timeline.kernel} on {cores}: about {time_text(estimate.seconds)}, {len(timeline.slices)} instructions. "
        "An estimate, not a measurement.",
        estimate.verdict(),
        f"HBM: {bytes_text(estimate.hbm_read)} read, {bytes_text(estimate.hbm_written)} written.",
    ]
    if estimate.flops:
        lines.append(
            f"Matrix products: {estimate.flops / 1e9:.3g} GFLOP, {estimate.intensity:.3g} per byte of HBM, MFU "
            f"{estimate.mfu:.1%}."
        )
    return lines


def lanes(estimate: Estimate) -> list[Mapping[str, str]]:
    """Return a row per engine."""
    return [
        {
            "core": str(lane.core),
            "engine": lane.name,
            "instructions": str(lane.instructions),
            "busy": time_text(lane.busy),
            "share": f"{lane.busy / estimate.seconds:.0%}" if estimate.seconds else "",
        }
        for lane in estimate.lanes
    ]


def lines(estimate: Estimate, count: int = 10) -> list[Mapping[str, str]]:
    """Return a row for each of the busiest lines."""
    return [
        {
            "line": place(line.source),
            "engine": line.lane,
            "instructions": str(line.instructions),
            "busy": time_text(line.busy),
        }
        for line in estimate.lines[:count]
    ]


def sources(estimate: Estimate) -> str:
    """Say which figures were used."""
    figures = estimate.figures
    return (
        f"{figures.name}: tensor {figures.tensor_hz / 1e9:g} GHz, vector {figures.vector_hz / 1e9:g}, scalar "
        f"{figures.scalar_hz / 1e9:g}, gpsimd {figures.gpsimd_hz / 1e9:g}; HBM "
        f"{figures.hbm_bytes_per_second / 1e9:g} GB/s per core; {figures.dma_engines} DMA engines of "
        f"{figures.dma_engine_bytes_per_second / 1e9:g} GB/s. {ASSUMED}"
    )


def place(source: SourceLocation | None) -> str:
    """Return file and line."""
    return "" if source is None else f"{Path(source.file).name}:{source.line}"


def time_text(seconds: float) -> str:
    """Return seconds with a unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def bytes_text(count: int) -> str:
    """Return bytes with a unit."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} bytes"
