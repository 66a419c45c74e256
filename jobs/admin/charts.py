"""Charts as plain SVG: bars and lines whose places are numbers, so that no style and no script is needed.

The drawing is stretched to its place, 100 units high; words stand beside it as HTML.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

HEIGHT = 100.0  # units
COLUMN = 10.0  # units, with a gap of a fifth
SMALLEST = 1.5  # units, so that one among thousands is seen
ROUND_TIMES = (
    1, 2, 5, 10, 20, 30, *(60 * minutes for minutes in (1, 2, 5, 10, 20, 30)),
    *(3600 * hours for hours in (1, 2, 4, 8, 12, 24)), *(86400 * days for days in (2, 4, 7, 14, 30)),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Part:
    """One rectangle: what it counts, and the list of it."""

    x: str
    y: str
    width: str
    height: str
    tone: str  # a class of admin.css
    title: str
    url: str


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line over all columns; it is broken where there is nothing to show."""

    tone: str
    label: Any
    path: str
    dots: str


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A number of the table below a chart, and its list."""

    value: Any
    url: str = ""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A column of a chart as a row of the table below it."""

    label: str
    cells: Sequence[Cell]


@dataclass(frozen=True, kw_only=True)
class Chart:
    """All that the template needs."""

    key: str
    title: Any
    note: Any
    top: str  # what the upper edge stands for
    ticks: Sequence[str]
    legend: Sequence[tuple[str, Any]]  # tone, words
    parts: Sequence[Part]
    lines: Sequence[Line]
    head: Sequence[Any]
    rows: Sequence[Row]
    is_empty: bool
    help: Any = ""

    @property
    def box(self) -> str:
        """The view box."""
        return f"0 0 {len(self.ticks) * COLUMN:g} {HEIGHT:g}"


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A number to be stacked."""

    value: float
    tone: str
    title: str
    url: str


def ceiling(value: float) -> float:
    """The next number from `value` on that reads well: 1, 2 or 5 with zeros; 1 at least."""
    step = 1.0
    while step < value:
        step *= 10
    return next(top for top in (step / 5, step / 2, step) if top >= value and top >= 1)


def ceiling_of_time(seconds: float) -> float:
    """The next length of time that reads well, in seconds."""
    return next((top for top in ROUND_TIMES if top >= seconds), ceiling(seconds))


def stacked(columns: Sequence[Sequence[Piece]], top: float) -> list[Part]:
    """Rectangles from the bottom up; nothing for zero."""
    parts = []
    for number, pieces in enumerate(columns):
        edge = HEIGHT
        for piece in pieces:
            if piece.value <= 0:
                continue
            height = min(edge, max(SMALLEST, HEIGHT * piece.value / top))
            edge -= height
            parts.append(_part(number, edge, height, piece))
    return parts


def columns_over(pieces: Iterable[Piece | None]) -> list[Part]:
    """Rectangles as high as the chart, to be pointed at where lines are too thin."""
    return [_part(number, 0, HEIGHT, piece) for number, piece in enumerate(pieces) if piece]


def line(values: Sequence[float | None], top: float, *, tone: str, label: Any) -> Line:
    """A line through the middle of each column."""
    path, dots, is_down = [], [], False
    for number, value in enumerate(values):
        if value is None:
            is_down = False
            continue
        place = f"{(number + 0.5) * COLUMN:g} {HEIGHT - min(HEIGHT, HEIGHT * value / top):.1f}"
        path.append(f"{'L' if is_down else 'M'}{place}")
        dots.append(f"M{place}h.01")
        is_down = True
    return Line(tone=tone, label=label, path="".join(path), dots="".join(dots))


def _part(number: int, y: float, height: float, piece: Piece) -> Part:
    return Part(
        x=f"{number * COLUMN + COLUMN * 0.1:g}", y=f"{y:.1f}", width=f"{COLUMN * 0.8:g}", height=f"{height:.1f}",
        tone=piece.tone, title=piece.title, url=piece.url,
    )  # fmt: skip
