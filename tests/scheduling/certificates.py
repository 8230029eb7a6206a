"""A certificate authority for tests, with the standard library only: P-256 keys, and certificates for strict clients.

For tests only: the duration of its arithmetic depends on the key.
"""

import base64
import hashlib
import ipaddress
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

PRIME = 2**256 - 2**224 + 2**192 + 2**96 - 1
ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
START = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
Point = tuple[int, int]

EC_KEY, P256, ECDSA_SHA256 = "1.2.840.10045.2.1", "1.2.840.10045.3.1.7", "1.2.840.10045.4.3.2"
COMMON_NAME = "2.5.4.3"
BASIC, KEY_USAGE, ALTERNATIVE, EXTENDED = "2.5.29.19", "2.5.29.15", "2.5.29.17", "2.5.29.37"
OWN_KEY, ISSUERS_KEY = "2.5.29.14", "2.5.29.35"
OF_SERVERS, OF_CLIENTS = "1.3.6.1.5.5.7.3.1", "1.3.6.1.5.5.7.3.2"


def added(one: Point | None, other: Point | None) -> Point | None:
    """The sum of two points of the curve. The zero point is None."""
    if one is None or other is None:
        return one or other
    (x1, y1), (x2, y2) = one, other
    if x1 == x2 and (y1 + y2) % PRIME == 0:
        return None
    slope = (3 * x1 * x1 - 3) * pow(2 * y1, -1, PRIME) if one == other else (y2 - y1) * pow(x2 - x1, -1, PRIME)
    x = (slope * slope - x1 - x2) % PRIME
    return x, (slope * (x1 - x) - y1) % PRIME


def multiplied(number: int, point: Point) -> Point:
    total: Point | None = None
    doubled: Point | None = point
    while number:
        if number & 1:
            total = added(total, doubled)
        doubled, number = added(doubled, doubled), number >> 1
    assert total is not None
    return total


def tagged(tag: int, *parts: bytes) -> bytes:
    whole = b"".join(parts)
    size = len(whole)
    if size < 0x80:
        return bytes([tag, size]) + whole
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + whole


def sequence(*parts: bytes) -> bytes:
    return tagged(0x30, *parts)


def integer(number: int) -> bytes:
    return tagged(0x02, number.to_bytes(number.bit_length() // 8 + 1, "big"))


def octets(whole: bytes) -> bytes:
    return tagged(0x04, whole)


def bits(whole: bytes) -> bytes:
    return tagged(0x03, b"\0", whole)


def identifier(dotted: str) -> bytes:
    first, second, *rest = map(int, dotted.split("."))
    written = bytearray([40 * first + second])
    for number in rest:
        groups = [number & 0x7F]
        while number := number >> 7:
            groups.append(number & 0x7F | 0x80)
        written += bytes(reversed(groups))
    return tagged(0x06, bytes(written))


def named(common_name: str) -> bytes:
    return sequence(tagged(0x31, sequence(identifier(COMMON_NAME), tagged(0x0C, common_name.encode()))))


def moment(at: datetime) -> bytes:
    return tagged(0x17, at.strftime("%y%m%d%H%M%SZ").encode())


def extension(dotted: str, value: bytes, *, critical: bool = False) -> bytes:
    return sequence(identifier(dotted), tagged(0x01, b"\xff") if critical else b"", octets(value))


def pem(label: str, der: bytes) -> str:
    lines = base64.encodebytes(der).decode().replace("\n", "")
    folded = "\n".join(lines[start : start + 64] for start in range(0, len(lines), 64))
    return f"-----BEGIN {label}-----\n{folded}\n-----END {label}-----\n"


class Key:
    def __init__(self) -> None:
        self._secret = secrets.randbelow(ORDER - 1) + 1
        x, y = multiplied(self._secret, START)
        self.public = b"\4" + x.to_bytes(32, "big") + y.to_bytes(32, "big")
        self.digest = hashlib.sha1(self.public).digest()

    def public_info(self) -> bytes:  # house: X.509 calls it so
        return sequence(sequence(identifier(EC_KEY), identifier(P256)), bits(self.public))

    def sign(self, message: bytes) -> bytes:
        digest = int.from_bytes(hashlib.sha256(message).digest(), "big")
        once = secrets.randbelow(ORDER - 1) + 1
        r = multiplied(once, START)[0] % ORDER
        return sequence(integer(r), integer(pow(once, -1, ORDER) * (digest + r * self._secret) % ORDER))

    def pem(self) -> str:
        curve, public = tagged(0xA0, identifier(P256)), tagged(0xA1, bits(self.public))
        return pem("EC PRIVATE KEY", sequence(integer(1), octets(self._secret.to_bytes(32, "big")), curve, public))


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, as files."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates of servers and clients on loopback. `names_keys`: they name their keys, as newer ones do."""

    def __init__(self, folder: Path, name: str, *, names_keys: bool = True) -> None:
        self._folder, self._name, self._names_keys = folder / name, name, names_keys
        self._folder.mkdir()
        self._key = Key()
        self.certificate = self._folder / "ca.crt"
        may_sign = extension(KEY_USAGE, tagged(0x03, b"\1\6"), critical=True)
        is_authority = extension(BASIC, sequence(tagged(0x01, b"\xff")), critical=True)
        self.certificate.write_text(self._signed(self._name, self._key, [is_authority, may_sign]))

    def pair(self, name: str, *, usage: str) -> Pair:
        """Makes a new pair. It replaces an older pair of that name."""
        made = Pair(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        key = Key()
        extensions = [
            extension(KEY_USAGE, tagged(0x03, b"\7\x80"), critical=True),
            extension(EXTENDED, sequence(identifier(usage))),
            extension(ALTERNATIVE, sequence(tagged(0x87, ipaddress.ip_address("127.0.0.1").packed))),
        ]
        made.certificate.write_text(self._signed(name, key, extensions))
        made.key.write_text(key.pem())
        made.key.chmod(0o600)
        return made

    def _signed(self, name: str, key: Key, extensions: Sequence[bytes]) -> str:
        now, algorithm = datetime.now(UTC), sequence(identifier(ECDSA_SHA256))
        keys = [
            extension(OWN_KEY, octets(key.digest)),
            extension(ISSUERS_KEY, sequence(tagged(0x80, self._key.digest))),
        ]
        told = sequence(
            tagged(0xA0, integer(2)),
            integer(secrets.randbits(120)),
            algorithm,
            named(self._name),
            sequence(moment(now - timedelta(hours=1)), moment(now + timedelta(days=1))),
            named(name),
            key.public_info(),
            tagged(0xA3, sequence(*extensions, *(keys if self._names_keys else ()))),
        )
        return pem("CERTIFICATE", sequence(told, algorithm, bits(self._key.sign(told))))
