"""Exceptions for what could not be known or done. A refusal is a value (`model.Hold`), not an exception.

    DispatcherError
    ├── SettingsError       the environment does not say how to run: exit 2
    ├── TemplateError       a Job manifest that cannot serve as a template
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


class DispatcherError(Exception):
    """Base of all faults that we raise."""


class SettingsError(DispatcherError):
    """All faults of the settings at once."""

    def __init__(self, faults: tuple[str, ...]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


class TemplateError(DispatcherError):
    """A manifest that cannot serve as a template; the message names field, value and rule."""


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
