"""A figure: what is measured, what the original takes, what ours must reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Figure", "percentiles"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One row of the table."""

    name: str
    text: str
    #: What the original takes, as it was measured on a machine of this size.
    original: str
    #: Measured value -> what ours must reach: at most that, or at least where it is a rate.
    target: Mapping[str, float]

    def report(self, measured: Mapping[str, Any]) -> dict[str, Any]:
        """Return the row with what was measured, and whether that is good enough."""
        return {
            "text": self.text,
            "original": self.original,
            "target": dict(self.target),
            "met": all(_reaches(name, measured[name], goal) for name, goal in self.target.items()),
            **measured,
        }


def _reaches(name: str, value: float, goal: float) -> bool:
    return value >= goal if name.endswith("per_s") else value <= goal


def percentiles(samples: Sequence[float]) -> dict[str, float]:
    """Return p50, p95 and p99 of samples in seconds, as milliseconds."""
    ordered = sorted(samples)
    return {
        f"p{part}_ms": round(ordered[int(len(ordered) * part / 100)] * 1e3, 3)
        for part in (50, 95, 99)
    }
