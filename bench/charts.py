"""The two kinds of picture that results are shown in: bars in groups, and values in order of size.

One style for all: every axis has its unit, every bar its number, and what is missing is said.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.svg import FAINT, INK, SMALL, Drawing, text_width, ticks

BLUE, ORANGE, GREEN, PURPLE, GREY, RED = "#0969da", "#e0912f", "#3f9d73", "#8d6cc2", "#a8b0b9", "#c0392b"
WIDTH = 860.0
HEAD = 72.0  # pixels above the first panel
BAR, BETWEEN, APART = 13.0, 2.0, 12.0  # a bar, and the room after it and after a group
GAP = 26.0  # between panels
LABEL = 12.0  # size of a group's label

Legend = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Bar:
    """A bar with its text. Without a value there is the text alone; `open`: the value is a lower bound."""

    value: float | None
    text: str
    colour: str
    open: bool = False
    ink: str = INK


@dataclass(frozen=True)
class Panel:
    """Groups of bars along one axis; `axis` names the quantity and its unit."""

    axis: str
    groups: Sequence[Sequence[Bar]]


def bars(title: str, note: str, legend: Legend, labels: Sequence[str], panels: Sequence[Panel]) -> str:
    """Panels side by side; group n of each belongs to label n."""
    left = 22 + max(text_width(label, LABEL) for label in labels)
    each = (WIDTH - left - 14 - GAP * (len(panels) - 1)) / len(panels)
    tall = [max(len(p.groups[n]) for p in panels) * (BAR + BETWEEN) for n in range(len(labels))]
    tops = [HEAD + 8 + sum(tall[:n]) + APART * n for n in range(len(labels))]
    bottom = HEAD + 8 + sum(tall) + APART * (len(labels) - 1) + 6
    d = Drawing(WIDTH, bottom + 46, title)
    d.head(title, note, legend)
    for label, top, height in zip(labels, tops, tall, strict=True):
        d.text(left - 8, top + height / 2 + 3, label, size=LABEL, anchor="end")
    for n, panel in enumerate(panels):
        _panel(d, panel, left + n * (each + GAP), each, tops, bottom)
    return d.svg()


def _panel(d: Drawing, panel: Panel, x: float, width: float, tops: Sequence[float], bottom: float) -> None:
    drawn = [b for group in panel.groups for b in group if b.value]
    scale = min(((width - text_width(b.text) - 8) / b.value for b in drawn if b.value), default=1.0)
    for t in ticks(width / scale, max(2, int(width // 60))):
        d.line(x + t * scale, HEAD, x + t * scale, bottom)
        if t * scale <= width - 6:
            d.text(x + t * scale, bottom + 15, f"{t:g}", fill=FAINT, anchor="middle")
    d.line(x, HEAD, x, bottom, FAINT)
    d.text(x + width / 2, bottom + 34, panel.axis, fill=FAINT, anchor="middle")
    for group, top in zip(panel.groups, tops, strict=True):
        for n, bar in enumerate(group):
            y, length = top + n * (BAR + BETWEEN), (bar.value or 0) * scale
            if bar.value:
                d.rect(x, y, max(length, 1), BAR, bar.colour, bar.open)
            d.text(x + length + 5, y + BAR - 3, bar.text, fill=bar.ink if bar.value else FAINT, bold=bar.colour == BLUE and bool(bar.value))


@dataclass(frozen=True)
class Mark:
    """A named line at a value."""

    name: str
    value: float
    colour: str


@dataclass(frozen=True)
class Scale:
    """Where a value stands on an axis, and round numbers between two values."""

    name: str
    place: Callable[[float], float]
    ticks: Callable[[float, float], Sequence[float]]


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers between two positive ones, finer where the range is short."""
    found: list[float] = []
    fine = tuple(k / 2 for k in range(2, 20)), tuple(k / 10 for k in range(10, 100))
    for factors in ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0), *fine):
        decades = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 1)
        found = [t for e in decades for f in factors if low <= (t := round(f * 10.0**e, 9)) <= high]
        if len(found) >= 4:
            break
    return found


def root_ticks(low: float, high: float) -> list[float]:
    return [t for t in (0.0, 1.0, 5.0, 10.0, 25.0, 50.0, 100.0, 150.0, 200.0, 300.0, 500.0, 1000.0) if low <= t <= high]


LOG = Scale("logarithmic", math.log, log_ticks)
ROOT = Scale("square-root axis", math.sqrt, root_ticks)  # for losses: zero is on it, and a large one does not hide the small


def ordered(title: str, note: str, series: Sequence[tuple[str, str, Sequence[float]]], axes: tuple[str, str], scale: Scale,
            marks: Sequence[Mark] = (), unit: str = "") -> str:
    """Each series (name, colour, values) as dots from its least to its largest value; `axes`: what is counted, what is measured and its unit."""
    values = [v for _, _, vs in series for v in vs]
    low, high = scale.place(min(values)), scale.place(max(values))
    spread = (high - low) or 1.0
    d = Drawing(WIDTH, 380, title)
    d.head(title, note, [(name, colour) for name, colour, _ in series] if len(series) > 1 else [])
    x, top, width, bottom = 70.0, HEAD + 8, WIDTH - 70 - 20, 330.0
    most = max(len(vs) for _, _, vs in series)

    def height(v: float) -> float:
        return bottom - 10 - (scale.place(v) - low) / spread * (bottom - 10 - top)

    for t in scale.ticks(min(values), max(values)):
        d.line(x, height(t), x + width, height(t))
        d.text(x - 7, height(t) + 4, f"{t:g}{unit}", fill=FAINT, anchor="end")
    for t in [1.0, *ticks(most, 8)[1:]]:
        d.text(x + (t - 0.5) / most * width, bottom + 16, f"{t:g}", fill=FAINT, anchor="middle")
    d.line(x, bottom, x + width, bottom, FAINT)
    d.text(x + width / 2, bottom + 36, axes[0], fill=FAINT, anchor="middle")
    d.text(18, (top + bottom) / 2, f"{axes[1]}, {scale.name}", fill=FAINT, anchor="middle", upwards=True)
    _marks(d, marks, x, width, height, unit)
    for _, colour, vs in series:
        for n, v in enumerate(sorted(vs)):
            d.dot(x + (n + 0.5) / most * width, height(v), 2.5 if most > 60 else 4, colour)
    return d.svg()


def _marks(d: Drawing, marks: Sequence[Mark], x: float, width: float, height: Callable[[float], float], unit: str) -> None:
    """Lines across the picture, each with its name above it, the names above each other, at the right, where all dots are higher."""
    used = math.inf
    for mark in sorted(marks, key=lambda m: m.value):
        y = height(mark.value)
        d.line(x, y, x + width, y, mark.colour)
        used = min(y - 6, used - SMALL - 5)
        d.text(x + width, used, f"{mark.name}: {mark.value:.2f}{unit}", fill=mark.colour, bold=True, anchor="end")
