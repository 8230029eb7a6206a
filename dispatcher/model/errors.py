"""Exceptions for what could not be known or done, the pause after failures, and the end of credentials. Pure.

A refusal is a value (`model.verdicts.Hold`), not an exception.

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

`certificates_end`, `token_end`: when certificates and tokens end, by their own words. They verify nothing.
"""

import base64
import binascii
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct

MOST_TOLD: Final = 5
"""Faults in the message of a TemplateError, at most. The message is the reason of its rows."""
NOT_READY_YET: Final = re.compile(r'\S+ "[^" ]*" is forbidden: not yet ready to handle request$')
"""The words of an API server that has just started. They look like a refusal, and say nothing about the object."""


class DispatcherError(Exception):
    """Base of all faults that we raise."""


class SettingsError(DispatcherError):
    """All faults of the settings at once."""

    def __init__(self, faults: tuple[str, ...]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


class TemplateFault(NamedTuple):
    """One fault of a template.

    path: keys and indexes that lead to the place in the manifest.
    words: field, value and rule.
    line: line of the file, for a text that is no YAML; 0: the path says where.
    """

    path: tuple[str | int, ...]
    words: str
    line: int = 0


class TemplateError(DispatcherError):
    """A manifest that cannot serve as a template. The message has the first faults, `faults` has all of them."""

    def __init__(self, *faults: TemplateFault, of: str = "") -> None:
        more = f"; and {len(faults) - MOST_TOLD} more" if len(faults) > MOST_TOLD else ""
        super().__init__(of + "; ".join(fault.words for fault in faults[:MOST_TOLD]) + more)
        self.faults = faults


class DiskError(DispatcherError):
    """Cache directories cannot be looked at or removed."""


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


MOST_DOUBLINGS: Final = 32
"""Later doublings add nothing: the limit is reached long before."""


def doubled(first: float, times: int, longest: float) -> float:
    """The pause after `times` failures in a row: `first`, doubled with each of them, at most `longest`."""
    return min(first * 2.0 ** min(times, MOST_DOUBLINGS), longest)


CERTIFICATE: Final = re.compile(rb"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.DOTALL)
VERSION: Final = 0xA0
UTC_TIME: Final = 0x17
VALIDITY: Final = 3
"""Index of the validity in a certificate, after serial number, algorithm and issuer (RFC 5280, section 4.1)."""


class TokenClaims(Struct, frozen=True):
    """The part of a token that is read. `exp`: Unix time of its end; None: it never ends."""

    exp: float | None = None


def certificates_end(pem: bytes) -> list[float]:
    """Unix times at which the certificates of a file end, in their order. Unreadable ones are left out.

    pem: the file. Comments between the certificates may have any encoding.
    """
    found = []
    for body in CERTIFICATE.findall(pem):
        try:
            found.append(certificate_end(base64.b64decode(body)))
        except (ValueError, IndexError, StopIteration):
            continue
    return found


def certificate_end(der: bytes) -> float:
    """Unix time of `notAfter`. Raises ValueError, IndexError or StopIteration for other bytes."""
    ((_, whole),) = parts(der)
    _, signed = next(parts(whole))
    fields = [content for tag, content in parts(signed) if tag != VERSION]
    (_, (kind, written)) = parts(fields[VALIDITY])
    return instant(kind, written.decode("ascii")).timestamp()


def instant(kind: int, written: str) -> datetime:
    """A time of X.509. The years of a UTCTime are 1950 to 2049."""
    if kind == UTC_TIME:
        written = ("19" if written[:2] >= "50" else "20") + written
    return datetime.strptime(written, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def parts(der: bytes) -> Iterator[tuple[int, bytes]]:
    """The values in DER one after the other, each with its tag."""
    at = 0
    while at < len(der):
        tag, length, start = der[at], der[at + 1], at + 2
        if length >= 0x80:
            start += length - 0x80
            length = int.from_bytes(der[at + 2 : start])
        at = start + length
        yield tag, der[start:at]


def token_end(token: str) -> float | None:
    """Unix time at which a JWT ends; infinite if it does not end; None if the token is no JWT."""
    try:
        _, claims, _ = token.split(".")
        found = msgspec.json.decode(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)), type=TokenClaims)
    except (ValueError, binascii.Error, msgspec.DecodeError):
        return None
    return float("inf") if found.exp is None else found.exp
