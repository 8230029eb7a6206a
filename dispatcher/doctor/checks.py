"""All checks: what each asks, why it matters, and the command that mends it. docs/doctor.md is made from this table."""

from collections.abc import Mapping
from typing import Final

from dispatcher.doctor.check import Check
from dispatcher.doctor.checks_of_cluster import CACHES, CLUSTER, OF_PROMETHEUS, SCHEDULING, TEMPLATES
from dispatcher.doctor.checks_of_database import DATABASE, SETTINGS

CHECKS: Final[Mapping[str, Check]] = {
    **SETTINGS, **DATABASE, **CLUSTER, **TEMPLATES, **SCHEDULING, **CACHES, **OF_PROMETHEUS
}  # fmt: skip
