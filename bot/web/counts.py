"""Counts what happens, and writes the counts as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["Counts"]

#: Rows of one count; what would be one more is counted without its labels.
SERIES = 200

_HELP: Mapping[str, str] = {
    "nod_events_total": "Events that came in, by surface and by what became of them.",
    "nod_posts_total": "Messages posted or edited, by surface and outcome.",
    "nod_refused_total": "Requests and payloads that were turned away, by surface and reason.",
    "nod_requests_total": "HTTP requests, by path and status.",
    "nod_surface_faults_total": "Times a surface failed to start or lost its connection for good.",
}


class Counts:
    """Counters by name and labels. Used from the event loop only; a restart begins at zero."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[tuple[tuple[str, str], ...], int]] = {}

    def add(self, name: str, amount: int = 1, **labels: str) -> None:
        """Count; `name` is one of those with a help text (raises KeyError otherwise)."""
        _HELP[name]
        series = self._counts.setdefault(name, {})
        key = tuple(sorted(labels.items()))
        if key not in series and len(series) >= SERIES:
            key = ()
        series[key] = series.get(key, 0) + amount

    def get(self, name: str, **labels: str) -> int:
        """Return one count."""
        return self._counts.get(name, {}).get(tuple(sorted(labels.items())), 0)

    def text(self) -> str:
        """Return all counts in the text format (prometheus.io/docs, exposition formats, 0.0.4)."""
        lines: list[str] = []
        for name, told in _HELP.items():
            lines += [f"# HELP {name} {told}", f"# TYPE {name} counter"]
            for labels, count in sorted(self._counts.get(name, {}).items()):
                shown = ",".join(f'{key}="{_escaped(value)}"' for key, value in labels)
                lines.append(f"{name}{{{shown}}} {count}" if shown else f"{name} {count}")
        return "\n".join(lines) + "\n"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
