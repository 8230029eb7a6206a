"""Requests that kube-scheduler would not send, many at once, to the program on a socket.

Each gets an answer, or its connection is closed. The program has no fault, and a correct request in between gets its
correct answer. `test_extender_fuzz.py` has the bodies alone, and knows the correct answer to each.

By default 10,000 requests, the same each time; with `make fuzz` 100,000 others. HOSTILE_SEED repeats a run that failed.
"""

import asyncio
import json
import os
import random
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.contract.bodies import PEAK_MIB, SECRET, peak_mib
from tests.contract.hostile_requests import HEALTHY, WORDS, Caller, Sent, a_request, head
from tests.property.drawn import GOOD
from tests.property.profiles import IS_NIGHTLY, amount
from tests.scheduling.own_extender import OwnExtender

pytest_plugins = ["tests.scheduling.fixtures"]
REQUESTS = amount(gate=1_000, whole=10_000, nightly=100_000)
CALLERS = 8
HEALTHY_EVERY = 250
SEED = int(os.environ.get("HOSTILE_SEED") or (random.SystemRandom().randrange(2**32) if IS_NIGHTLY else 20261122))
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
