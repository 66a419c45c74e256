"""Figures, their goals, and where they are written."""

import json
import operator
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from bench.ground import Used, say

COMPARE = {"<=": operator.le, ">=": operator.ge}


@dataclass
class Report:
    """Prints each figure as one JSON line at once."""

    missed: list[str] = field(default_factory=list)

    def figure(self, name: str, value: float, unit: str, goal: str = "") -> None:
        """Print a figure; `goal` is such as `<= 1.3`, or empty for one that only explains the others."""
        sign, _, limit = goal.partition(" ")
        ok = not goal or COMPARE[sign](round(value, 3), float(limit))
        if not ok:
            self.missed.append(name)
        print(json.dumps({"name": name, "value": round(value, 3), "unit": unit, "goal": goal or None, "ok": ok}))
        sys.stdout.flush()
        say(f"  {'ok    ' if ok else 'MISSED'} {name}: {value:.3f} {unit} {goal}")

    def cpu_ratio(self, name: str, ours: Sequence[Used], theirs: Sequence[Used], goal: str) -> None:
        """The median over rounds that took turns, so that a noise of the machine meets both sides."""
        ratios = [mine.cpu / other.cpu for mine, other in zip(ours, theirs, strict=True)]
        self.figure(name, median(ratios), "ratio of CPU", goal)
