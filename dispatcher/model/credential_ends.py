"""When certificates and tokens end, by their own words. Pure. Nothing is verified: those who use them do that."""

import base64
import binascii
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

import msgspec
from msgspec import Struct

CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.DOTALL)
VERSION: Final = 0xA0
UTC_TIME: Final = 0x17
VALIDITY: Final = 3
"""Place of the validity in a certificate, after serial number, algorithm and issuer (RFC 5280, section 4.1)."""


class Claims(Struct, frozen=True):
    """The part of a token that is read. `exp`: Unix time of its end; None: it never ends."""

    exp: float | None = None


def certificates_end(pem: str) -> list[float]:
    """Unix times at which the certificates of a file end, in their order. Unreadable ones are left out."""
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
        found = msgspec.json.decode(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)), type=Claims)
    except (ValueError, binascii.Error, msgspec.DecodeError):
        return None
    return float("inf") if found.exp is None else found.exp
