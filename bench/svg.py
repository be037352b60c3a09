"""Shapes and text -> an SVG picture: the same bytes for the same calls, whatever is installed.

Coordinates are pixels from the top left. The background is white, so that a picture reads the same in light and dark viewers; text is text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape, quoteattr

INK, FAINT, GRID = "#1f2328", "#59636e", "#e4e7eb"
FONT = "-apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"
SMALL = 11


def number(x: float) -> str:
    """At most one decimal: a tenth of a pixel."""
    return f"{round(x, 1) + 0.0:g}"


def text_width(text: str, size: float = SMALL) -> float:
    """Pixels that the text takes at most in the fonts above, nearly."""
    narrow = sum(c in " .,:;()'il|" for c in text)
    return size * (0.62 * (len(text) - narrow) + 0.34 * narrow)


def ticks(top: float, most: int = 5) -> list[float]:
    """Round numbers from 0 to at most `top`, `most` steps or fewer."""
    rough = top / most
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(f * unit for f in (1, 2, 5, 10) if f * unit >= rough * 0.999)
    return [k * step for k in range(math.floor(top / step * 1.001) + 1)]


@dataclass
class Drawing:
    """A picture of `width` × `height` pixels; `title` is what a screen reader says."""

    width: float
    height: float
    title: str
    parts: list[str] = field(default_factory=list[str])

    def rect(self, x: float, y: float, width: float, height: float, fill: str, dashed: bool = False) -> None:
        """`dashed`: an outline of the colour around a pale filling."""
        style = f'fill="{fill}"' if not dashed else f'fill="{fill}" fill-opacity="0.25" stroke="{fill}" stroke-dasharray="3 2"'
        self.parts.append(f'<rect x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}" {style}/>')

    def line(self, x: float, y: float, to_x: float, to_y: float, stroke: str = GRID) -> None:
        self.parts.append(f'<line x1="{number(x)}" y1="{number(y)}" x2="{number(to_x)}" y2="{number(to_y)}" stroke="{stroke}"/>')

    def dot(self, x: float, y: float, radius: float, fill: str) -> None:
        self.parts.append(f'<circle cx="{number(x)}" cy="{number(y)}" r="{number(radius)}" fill="{fill}"/>')

    def text(self, x: float, y: float, text: str, *, fill: str = INK, size: float = SMALL, anchor: str = "start", bold: bool = False,
             upwards: bool = False) -> None:
        """`y` is the base line; `anchor`: start, middle or end. `upwards`: turned to the left by a right angle."""
        weight = ' font-weight="600"' if bold else ""
        turn = f' transform="rotate(-90 {number(x)} {number(y)})"' if upwards else ""
        self.parts.append(f'<text x="{number(x)}" y="{number(y)}" font-size="{number(size)}" fill="{fill}" text-anchor="{anchor}"{weight}{turn}>'
                          f"{escape(text)}</text>")

    def head(self, title: str, note: str, legend: Sequence[tuple[str, str]]) -> None:
        """The title, a line under it, and a legend of (name, colour) in the third line; they take 64 pixels."""
        self.text(12, 22, title, size=15, bold=True)
        self.text(12, 39, note, fill=FAINT, size=12)
        x = 12.0
        for name, colour in legend:
            self.rect(x, 50, 10, 10, colour)
            self.text(x + 14, 59, name)
            x += 14 + text_width(name) + 18

    def svg(self) -> str:
        w, h = number(self.width), number(self.height)
        head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{w}" height="{h}" viewBox="0 0 {w} {h}" role="img" aria-label={quoteattr(self.title)}'
        back = f'<rect width="{w}" height="{h}" rx="6" fill="#ffffff"/>'
        return "\n".join([f'{head} font-family="{FONT}">', back, *self.parts, "</svg>", ""])
