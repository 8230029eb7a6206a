"""Times and durations for people."""

from datetime import datetime


def at(when: datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M:%S %Z}"


def span(seconds: float) -> str:
    """A duration in its largest whole unit: `2 h`."""
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length:.0f} {unit}"
    return f"{seconds:.0f} s"
