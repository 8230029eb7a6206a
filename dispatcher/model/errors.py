"""Faults. A refusal is a value (`model.Hold`); these are what could not be known or done.

    DispatcherError
    ├── SettingsError       the environment does not say how to run: exit 2
    ├── TemplateError       a Job manifest that cannot serve as a template
    ├── DatabaseError       rows cannot be read
    │   ├── DatabaseAway    no connection, no answer in time
    │   ├── DatabaseNotPrimary
    │   └── DatabaseUnfit   schema, index or privilege is not what this version needs
    └── ClusterError        the Kubernetes API does not do what was asked
        ├── ClusterAway     no connection, no answer in time, an answer of nobody's
        ├── ClusterRefused  it answered with a Status: carries code and reason
        └── ClusterStale    a store is too old to decide by

Adapters translate once, with `from`; nothing above them knows a driver's exception.
"""


class DispatcherError(Exception):
    """Every fault of ours."""


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
    """The server is in recovery: its rows may be old, so nothing is decided by them."""

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
