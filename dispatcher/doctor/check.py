"""A check and its part. `doctor.checks` has all checks."""

from enum import StrEnum

from msgspec import Struct


class Part(StrEnum):
    """A part of the installation. Each part is read apart from the others."""

    SETTINGS = "settings"
    DATABASE = "database"
    CLUSTER = "cluster"
    TEMPLATES = "templates"
    SCHEDULING = "scheduler and extender"
    CACHES = "caches"
    PROMETHEUS = "Prometheus"


class Check(Struct, frozen=True):
    """One check.

    asks: the question that it answers with yes in a healthy installation.
    why: why a fault matters.
    mend: the command that mends it.
    """

    part: Part
    asks: str
    why: str
    mend: str
