"""An estimate as one HTML page that needs nothing else: timeline, shares, roofline."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import jinja2

from torch_neuronx_nki.cost import text
from torch_neuronx_nki.cost.estimate import LANES, Estimate

TEMPLATE = Path(__file__).with_name("page.html.jinja")
WIDTH = 900.0
ROW = 22.0
_LEAST = 0.6
"""Units of the drawing below which neighbours are drawn as one."""


@dataclass(frozen=True, slots=True)
class Block:
    """A rectangle of the timeline."""

    x: float
    width: float
    row: int
    lane: str
    title: str


@dataclass(frozen=True, slots=True)
class Roof:
    """The roofline plot, in units of the drawing."""

    line: str
    x: float
    y: float
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]
    reached: str
    possible: str


def write(estimate: Estimate, path: Path) -> Path:
    """Write the page of ``estimate`` to ``path`` and return it."""
    path.write_text(render(estimate), encoding="utf-8")
    return path


def render(estimate: Estimate) -> str:
    """Return the page; whatever comes from the kernel is escaped."""
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    rows = _rows(estimate)
    return template.render(
        estimate=estimate,
        summary=text.summary(estimate),
        sources=text.sources(estimate),
        lanes=list(zip(text.lanes(estimate), estimate.lanes, strict=True)),
        lines=text.lines(estimate, 30),
        rows=[(f"{lane} {core}" if estimate.timeline.lnc > 1 else lane) for core, lane in rows],
        blocks=list(_blocks(estimate, rows)),
        ticks=[(WIDTH * step / 5, text.time_text(estimate.seconds * step / 5)) for step in range(6)],
        width=WIDTH,
        row=ROW,
        roof=_roof(estimate) if estimate.flops else None,
    )


def _rows(estimate: Estimate) -> list[tuple[int, str]]:
    return [(lane.core, lane.name) for lane in estimate.lanes if lane.name != LANES[-1]]


def _blocks(estimate: Estimate, rows: list[tuple[int, str]]) -> Iterator[Block]:
    if not estimate.seconds:
        return
    scale = WIDTH / estimate.seconds
    for number, row in enumerate(rows):
        open_from = open_to = -1.0
        names: list[str] = []
        count = 0
        pieces = sorted(
            (piece for piece in estimate.timeline.slices if (piece.core, piece.lane) == row),
            key=lambda piece: piece.start,
        )
        for piece in pieces:
            start = piece.start * scale
            end = (piece.end if row[1] == "dma" else piece.start + piece.work.busy) * scale
            if open_to >= 0 and (start - open_to > _LEAST or (end - start > 8 and open_to - open_from > 8)):
                yield Block(open_from, max(open_to - open_from, _LEAST), number, row[1], _title(names, count))
                open_from, names, count = start, [], 0
            elif open_to < 0:
                open_from = start
            open_to = max(open_to, end)
            count += 1
            name = f"{piece.opcode} {text.place(piece.source)}"
            if name not in names and len(names) < 4:
                names.append(name)
        if open_to >= 0:
            yield Block(open_from, max(open_to - open_from, _LEAST), number, row[1], _title(names, count))


def _title(names: list[str], count: int) -> str:
    return f"{count} x " * (count > 1) + ", ".join(names)


def _roof(estimate: Estimate) -> Roof:
    """Return operations per second over operations per byte, both logarithmic."""
    cores = estimate.timeline.lnc
    peak = estimate.flops / estimate.ideal_seconds * cores
    bandwidth = estimate.figures.hbm_bytes_per_second * cores
    reached = estimate.flops / estimate.seconds
    ridge = peak / bandwidth
    low = 10.0 ** math.floor(math.log10(min(estimate.intensity, ridge) / 3))
    high = 10.0 ** math.ceil(math.log10(max(estimate.intensity, ridge) * 3))
    bottom = 10.0 ** math.floor(math.log10(min(reached, low * bandwidth)))
    top = 10.0 ** math.ceil(math.log10(peak))
    width, height = 440.0, 220.0

    def x(intensity: float) -> float:
        return width * math.log10(intensity / low) / math.log10(high / low)

    def y(rate: float) -> float:
        return height - height * math.log10(rate / bottom) / math.log10(top / bottom)

    points = [(low, low * bandwidth), (ridge, peak), (high, peak)]
    return Roof(
        line=" ".join(f"{x(intensity):.1f},{y(rate):.1f}" for intensity, rate in points),
        x=x(estimate.intensity),
        y=y(reached),
        x_ticks=tuple((x(10.0**power), f"{10.0**power:g}") for power in _powers(low, high)),
        y_ticks=tuple((y(10.0**power), f"{10.0**power / 1e12:g}") for power in _powers(bottom, top)),
        reached=f"{reached / 1e12:.3g} TFLOP/s",
        possible=f"{min(peak, estimate.intensity * bandwidth) / 1e12:.3g} TFLOP/s",
    )


def _powers(low: float, high: float) -> range:
    return range(round(math.log10(low)), round(math.log10(high)) + 1)
