"""Exceptions for what could not be known or done. A refusal is a value (`model.Hold`), not an exception.

    DispatcherError
    ├── SettingsError       the environment does not say how to run: exit 2
    ├── TemplateError       a Job manifest that cannot serve as a template
    ├── DiskError           cache directories cannot be looked at or removed
    ├── DatabaseError       rows cannot be read
    │   ├── DatabaseAway    no connection, no answer in time
    │   ├── DatabaseNotPrimary
    │   └── DatabaseUnfit   schema, index or privilege is not what this version needs
    └── ClusterError        the Kubernetes API does not do what was asked
        ├── ClusterAway     no connection, no answer in time, an answer that is not Kubernetes'
        ├── ClusterRefused  the API server answered with a failure Status: code and reason
        └── ClusterStale    a store is too old to decide by

Adapters translate exceptions of drivers once, with `from`. Other code never sees a driver's exception.
"""

from typing import Final, NamedTuple

MOST_TOLD: Final = 5
"""So many faults of a template are in one message, which is the reason of its rows."""


class DispatcherError(Exception):
    """Base of all faults that we raise."""


class SettingsError(DispatcherError):
    """All faults of the settings at once."""

    def __init__(self, faults: tuple[str, ...]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


class Fault(NamedTuple):
    """One fault of a template.

    path: keys and indexes that lead to the place in the manifest.
    words: field, value and rule.
    line: line of the file, for a text that cannot be read as YAML; 0: the path says where.
    """

    path: tuple[str | int, ...]
    words: str
    line: int = 0


class TemplateError(DispatcherError):
    """A manifest that cannot serve as a template. The message has the first faults, `faults` has all of them."""

    def __init__(self, *faults: Fault, of: str = "") -> None:
        more = f"; and {len(faults) - MOST_TOLD} more" if len(faults) > MOST_TOLD else ""
        super().__init__(of + "; ".join(fault.words for fault in faults[:MOST_TOLD]) + more)
        self.faults = faults


class DiskError(DispatcherError):
    """The disk of the cache directories does not do what was asked."""


class DatabaseError(DispatcherError):
    """Rows cannot be read."""

    code = "DbAway"


class DatabaseAway(DatabaseError):
    """No connection, or no answer in time."""


class DatabaseNotPrimary(DatabaseError):
    """The server is in recovery. Its rows may be old, so no decision uses them."""

    code = "DbNotPrimary"


class DatabaseUnfit(DatabaseError):
    """Schema, index or privilege is not what this version needs."""

    code = "DbUnfit"


class ClusterError(DispatcherError):
    """The Kubernetes API does not do what was asked."""


class ClusterAway(ClusterError):
    """No connection, no answer in time, or an answer that is not Kubernetes'."""


class ClusterRefused(ClusterError):
    """The API server answered with a failure Status."""

    def __init__(self, doing: str, status: int, reason: str, message: str) -> None:
        super().__init__(f"{doing}: {status} {reason}: {message[:300]}")
        self.status = status
        self.reason = reason


class ClusterStale(ClusterError):
    """A store has shown no sign of life for too long to decide by it."""
