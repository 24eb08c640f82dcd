"""What a timeline adds up to: who is busy, what bounds the kernel, and how much of the chip it uses."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch_neuronx_nki.cost.figures import Figures
from torch_neuronx_nki.cost.figures.kind import ASSUMED
from torch_neuronx_nki.cost.timeline import DMA, HBM, Timeline, schedule
from torch_neuronx_nki.trace import Event, SourceLocation

LANES = ("tensor", "vector", "scalar", "gpsimd", "sync", DMA, HBM)


@dataclass(frozen=True, slots=True)
class Lane:
    """One engine of one core, its DMA engines, or its share of HBM."""

    core: int
    name: str
    instructions: int
    busy: float
    """Seconds."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the kernel."""

    source: SourceLocation | None
    lane: str
    instructions: int
    busy: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimate of a kernel on a chip, from published figures."""

    timeline: Timeline
    lanes: tuple[Lane, ...]
    lines: tuple[Line, ...]
    """The lines that keep their engines busy, the busiest first."""
    flops: int
    """Of matrix products, on all cores."""
    ideal_seconds: float
    """The products at the engines' peak."""
    hbm_read: int
    hbm_written: int

    @property
    def seconds(self) -> float:
        """How long the kernel takes."""
        return self.timeline.seconds

    @property
    def bound(self) -> Lane | None:
        """What is busy the longest: nothing can make the kernel faster than it."""
        return max(self.lanes, key=lambda lane: lane.busy, default=None)

    @property
    def intensity(self) -> float:
        """Operations per byte of HBM."""
        return self.flops / max(self.hbm_read + self.hbm_written, 1)

    @property
    def mfu(self) -> float:
        """Share of the tensor engines' peak, for the types that the kernel multiplies."""
        return self.ideal_seconds / self.timeline.lnc / self.seconds if self.seconds else 0.0

    @property
    def figures(self) -> Figures:
        """Where the numbers come from."""
        return self.timeline.figures

    def verdict(self) -> str:
        """Say in one sentence what bounds the kernel."""
        bound = self.bound
        if bound is None or not self.seconds:
            return "The kernel has no instruction that takes time."
        share = bound.busy / self.seconds
        who = {DMA: "the DMA engines", HBM: "HBM"}.get(bound.name, f"the {bound.name} engine")
        where = f" of core {bound.core}" if self.timeline.lnc > 1 else ""
        if share >= 0.7:
            return f"Bound by {who}{where}, busy {share:.0%} of the time."
        return f"Bound by waiting: nothing is busier than {who}{where}, {share:.0%} of the time."

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "estimate": True,
            "kernel": self.timeline.kernel,
            "target": self.timeline.target,
            "cores": self.timeline.lnc,
            "seconds": self.seconds,
            "instructions": len(self.timeline.slices),
            "bound": None if self.bound is None else self.bound.name,
            "verdict": self.verdict(),
            "flops": self.flops,
            "hbm_read": self.hbm_read,
            "hbm_written": self.hbm_written,
            "intensity": self.intensity,
            "mfu": self.mfu,
            "lanes": [
                {"core": lane.core, "name": lane.name, "instructions": lane.instructions, "busy": lane.busy}
                for lane in self.lanes
            ],
            "lines": [
                {
                    "source": None if line.source is None else f"{line.source.file}:{line.source.line}",
                    "lane": line.lane,
                    "instructions": line.instructions,
                    "busy": line.busy,
                }
                for line in self.lines
            ],
            "figures": {name: getattr(self.figures, name) for name in self.figures.__slots__},
            "assumed": ASSUMED,
        }


def estimate(events: Sequence[Event]) -> Estimate:
    """Estimate the kernel whose events of one launch are given."""
    timeline = schedule(events)
    lanes: dict[tuple[int, str], list[float]] = {}
    lines: dict[tuple[SourceLocation | None, str], list[float]] = {}
    flops = read = written = 0
    ideal = 0.0
    for piece in timeline.slices:
        work = piece.work
        flops, ideal = flops + work.flops, ideal + work.ideal
        read, written = read + work.hbm_read, written + work.hbm_written
        _count(lanes.setdefault((piece.core, piece.lane), [0, 0.0]), work.busy)
        _count(lines.setdefault((piece.source, piece.lane), [0, 0.0]), work.busy)
        if work.hbm_seconds:
            _count(lanes.setdefault((piece.core, HBM), [0, 0.0]), work.hbm_seconds)
    order = {name: place for place, name in enumerate(LANES)}
    return Estimate(
        timeline=timeline,
        lanes=tuple(
            Lane(core, name, int(count), busy)
            for (core, name), (count, busy) in sorted(
                lanes.items(), key=lambda item: (item[0][0], order.get(item[0][1], len(LANES)))
            )
        ),
        lines=tuple(
            Line(source, lane, int(count), busy)
            for (source, lane), (count, busy) in sorted(lines.items(), key=lambda item: -item[1][1])
        ),
        flops=flops,
        ideal_seconds=ideal,
        hbm_read=read,
        hbm_written=written,
    )


def _count(entry: list[float], busy: float) -> None:
    entry[0] += 1
    entry[1] += busy
