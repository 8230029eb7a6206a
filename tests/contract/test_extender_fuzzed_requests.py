"""Requests that kube-scheduler would not send, many at once, to the program on a socket.

Each gets an answer, or its connection is closed. The program has no fault, and a correct request in between gets its
correct answer. `test_extender_fuzz.py` has the bodies alone, and knows the correct answer to each.

By default 10,000 requests, the same each time; with `make fuzz` 100,000 others. HOSTILE_SEED repeats a run that failed.
"""

import asyncio
import gzip
import json
import random
import re
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

import pytest

from tests.contract.bodies import PEAK_MIB, SECRET, asking, peak_mib
from tests.property.drawn import GOOD
from tests.property.mutations import change
from tests.property.profiles import amount, seed_of
from tests.scheduling.own_extender import OwnExtender

# Requests to an extender as bytes on the wire: changed bodies of kube-scheduler, with correct or wrong heads.

VERBS: Final = ("filter", "prioritize", "preempt", "explain")
DEEP: Final = 10_000
HEALTHY: Final = asking(NodeNames=["c", "a", "b"])
WORDS: Final = json.loads(HEALTHY)["NodeNames"]


def nested(random: Random) -> bytes:
    """JSON nested 10,000 deep, closed or not, as the whole body or inside a Pod."""
    opening, closing = random.choice((("[", "]"), ('{"a":', "}")))
    deep = opening * DEEP + "1" + closing * random.choice((DEEP, 0))
    where = random.choice((b"%s", b'{"Pod": %s, "NodeNames": ["a"]}', b'{"NodeNames": ["a"], "Pod": {"spec": %s}}'))
    return where % deep.encode()


def numbered(random: Random) -> bytes:
    number = random.choice(
        ("9" * 10_000, "-" + "1" * 5000, "1e" + "9" * 300, "0." + "0" * 9000 + "1", "1E-99999999999")
    )
    where = random.choice(
        (b'{"Pod": {"metadata": {"generation": %s}}, "NodeNames": ["a"]}', b'{"NodeNames": [%s, "a"]}', b"%s")
    )
    return where % number.encode()


def doubled(random: Random) -> bytes:
    """The same keys again, with the same or other values."""
    key = random.choice(("NodeNames", "Pod", "Nodes", "metadata"))
    value = random.choice(('["x"]', "null", "{}", '"x"', "5", '{"metadata": {"name": 5}}'))
    return HEALTHY[:-1] + f', "{key}": {value}'.encode() * random.randrange(1, 50) + b"}"


def mangled(random: Random, good: str) -> bytes:
    """A body that is not UTF-8, or is in another encoding."""
    encoding = random.choice(("utf-16", "utf-32", "utf-8-sig", "latin-1"))
    spoiled = good.replace("task-1", "\udcff\udcfe" if encoding == "utf-8-sig" else "täsk")
    return (
        spoiled.encode(encoding, "replace") if random.random() < 0.5 else good.encode().replace(b"a", b"\xff\xc0\x80")
    )


def a_body(random: Random, good: str) -> bytes:
    chance = random.random()
    if chance < 0.85:
        return change(random, good)
    made = random.choice((nested, numbered, doubled))
    return made(random) if chance < 0.97 else mangled(random, good)


@dataclass(frozen=True, slots=True)
class Sent:
    """The bytes of one request.

    * is_sound: correct HTTP/1.1, so the server owes an answer.
    * ends: nothing follows on the connection.
    """

    raw: bytes
    is_sound: bool = True
    ends: bool = False


def head(verb: str, *lines: str, method: str = "POST", host: str = "localhost") -> bytes:
    return "\r\n".join([f"{method} /{verb} HTTP/1.1", *([f"Host: {host}"] if host else []), *lines, "", ""]).encode(
        "latin-1"
    )


def chunks(random: Random, body: bytes) -> bytes:
    size, parts = random.choice((1, 7, 4096)) if len(body) < 2000 else 4096, b""
    for start in range(0, len(body), size):
        part = body[start : start + size]
        parts += b"%x\r\n%s\r\n" % (len(part), part)
    return parts + b"0\r\n\r\n"


def in_chunks(random: Random, verb: str, body: bytes) -> Sent:
    whole = head(verb, "Transfer-Encoding: chunked") + chunks(random, body)
    if random.random() < 0.6:
        return Sent(whole)
    broken = (b"ffffffffffffffff\r\n", b"-1\r\n", b"zz\r\n", b"5\r\nab", b"5;" + b"x" * 9000 + b"\r\nabcde\r\n")
    return Sent(head(verb, "Transfer-Encoding: chunked") + random.choice(broken), is_sound=False, ends=True)


def truncated(random: Random, verb: str, body: bytes) -> Sent:
    """Announces more bytes than it sends, then closes the connection."""
    told = random.choice((1, 100, 10_000, 2**20))
    return Sent(head(verb, f"Content-Length: {len(body) + told}") + body, is_sound=False, ends=True)


def two_lengths(random: Random, verb: str, body: bytes) -> Sent:
    """Lengths that proxies and servers read in two ways."""
    lines = random.choice((
        ["Content-Length: 5", f"Content-Length: {len(body)}"], ["Content-Length: -1"], ["Content-Length: 1e3"],
        ["Content-Length: " + "9" * 30], [f"Content-Length: {len(body)}", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: chunked, identity"], ["Transfer-Encoding: xchunked", f"Content-Length: {len(body)}"],
    ))  # fmt: skip
    return Sent(head(verb, *lines) + body, is_sound=False)


def odd_head(random: Random, verb: str, body: bytes) -> Sent:
    length = f"Content-Length: {len(body)}"
    lines = random.choice((
        ["X: " + "x" * 9000], ["X\x01: y"], [": y"], ["X : y"], [f"X{n}: y" for n in range(300)], ["X: \xff\xfe"],
        ["Expect: something"], ["Connection: Upgrade", "Upgrade: websocket"],
    ))  # fmt: skip
    return Sent(head(verb, *lines, length) + body, is_sound=False, ends="Upgrade: websocket" in lines)


def other_place(random: Random, verb: str, body: bytes) -> Sent:
    verb = random.choice(
        ("", "bind", "filter/", "../filter", "filter?x=1", "%00", "metrics", "Filter", "filter%2f", "x" * 5000)
    )
    method = random.choice(("POST", "PUT", "GET", "DELETE", "PATCH", "OPTIONS"))
    return Sent(head(verb, f"Content-Length: {len(body)}", method=method) + body, is_sound=False)


def other_host(random: Random, verb: str, body: bytes) -> Sent:
    host = random.choice(
        ("evil.example", "127.0.0.1.evil.example", "localhost.", "", "[::1", "a" * 3000, "localhost:99999", "\xff")
    )
    return Sent(head(verb, f"Content-Length: {len(body)}", host=host) + body, is_sound=False)


def zipped(random: Random, verb: str, body: bytes) -> Sent:
    coding = random.choice(("gzip", "deflate", "br", "zstd", "x", "gzip, gzip"))
    packed = gzip.compress(body, 1) if random.random() < 0.5 else body
    return Sent(head(verb, f"Content-Length: {len(packed)}", f"Content-Encoding: {coding}") + packed, is_sound=False)


def other_type(random: Random, verb: str, body: bytes) -> Sent:
    kind = random.choice(
        (
            "text/html",
            "multipart/form-data; boundary=x",
            "application/x-www-form-urlencoded",
            "application/json; charset=utf-7",
            "",
            "x" * 500,
        )
    )
    return Sent(head(verb, f"Content-Length: {len(body)}", f"Content-Type: {kind}") + body)


WAYS: Final = (in_chunks, truncated, two_lengths, odd_head, other_place, other_host, zipped, other_type)


def a_request(random: Random, good: str) -> Sent:
    verb, body = random.choice(VERBS[:2] if random.random() < 0.7 else VERBS), a_body(random, good)
    if random.random() < 0.12:
        return random.choice(WAYS)(random, verb, body)
    return Sent(head(verb, f"Content-Length: {len(body)}", "Content-Type: application/json") + body)


@dataclass(slots=True)
class Caller:
    """Sends over one connection, and opens another one after it was closed. `statuses`: answers by status; 0: no
    answer.
    """

    port: int
    statuses: dict[int, int] = field(default_factory=dict)
    _line: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, sent: Sent) -> tuple[int, bytes]:
        """Status and body of the answer."""
        reader, writer = self._line or await asyncio.open_connection("127.0.0.1", self.port)
        self._line = reader, writer
        status, body, is_kept = 0, b"", False
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            writer.write(sent.raw)
            if sent.ends:
                writer.write_eof()
            async with asyncio.timeout(20):
                status, body, is_kept = await self._answer(reader)
        if not status or not sent.is_sound or not is_kept:
            self.close()
        self.statuses[status] = self.statuses.get(status, 0) + 1
        return status, body

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[int, bytes, bool]:
        said = await reader.readuntil(b"\r\n\r\n")
        status = int(said.split(b" ", 2)[1])
        size = re.search(rb"(?i)\r\ncontent-length: (\d+)", said)
        body = await reader.readexactly(int(size[1])) if size else b""
        return status, body, b"connection: close" not in said.lower()

    def close(self) -> None:
        if self._line:
            self._line[1].close()
        self._line = None


pytest_plugins = ["tests.scheduling.fixtures"]
REQUESTS = amount(gate=1_000, whole=10_000, nightly=100_000)
CALLERS = 8
HEALTHY_EVERY = 250
SEED = seed_of("HOSTILE_SEED")
REFUSALS = {400, 403, 404, 405, 408, 413, 415, 417, 421}
NOT_HTTP = re.compile(r"(Error handling request from 127\.0\.0\.1|Unhandled exception): [A-Za-z]+")
"""The HTTP server's log line for an unreadable head or coding: the fault's name, nothing of the request."""
CUT = 0
BUSY = 503


async def flood(caller: Caller, chance: random.Random, count: int) -> None:
    good = Sent(head("filter", f"Content-Length: {len(HEALTHY)}", "Content-Type: application/json") + HEALTHY)
    for number in range(count):
        sent = a_request(chance, chance.choice(GOOD))
        status, body = await caller.send(sent)
        assert status in {200, *REFUSALS} or (status == CUT and not sent.is_sound) or is_busy(status, body), (
            status,
            sent,
        )
        assert SECRET.encode() not in body or status == 200, sent
        if number % HEALTHY_EVERY == 0:
            status, body = await caller.send(good)
            assert (status, json.loads(body)["NodeNames"]) == (200, WORDS)
    caller.close()


def is_busy(status: int, body: bytes) -> bool:
    """The only documented answer with a status of 500 or more."""
    return status == BUSY and b"ask again" in body


@pytest.fixture(scope="module")
def seed() -> int:
    sys.stderr.write(f"\nHOSTILE_SEED={SEED}, {REQUESTS} requests\n")
    return SEED


async def test_hostile_requests_leave_the_extender_well(extender_kubeconfig: Path, seed: int) -> None:
    async with OwnExtender(extender_kubeconfig) as own_extender:
        await own_extender.ready()
        callers = [Caller(own_extender.extender_port) for _ in range(CALLERS)]
        async with asyncio.TaskGroup() as group:
            for number, caller in enumerate(callers):
                group.create_task(flood(caller, random.Random(seed + number), REQUESTS // CALLERS))
        statuses = sum((Counter(caller.statuses) for caller in callers), Counter())
        peak, lines = peak_mib(own_extender.process.pid), [json.loads(line) for line in own_extender.log.splitlines()]
        sys.stderr.write(f"{dict(statuses)}, peak {peak:.0f} MiB, {len(lines)} lines of log\n")
        assert statuses[200] > REQUESTS // 4
        assert statuses[400] > REQUESTS // 20
        assert peak < PEAK_MIB
        faults = {line["event"] for line in lines if line["level"] not in {"info", "warning"}}
        assert [fault for fault in faults if not NOT_HTTP.fullmatch(fault)] == []
        assert "Traceback" not in own_extender.log
        assert SECRET not in own_extender.log
        assert await own_extender.stop() == 0
