"""Asks a Prometheus what a Pod really used. Advice: whatever goes wrong here costs nobody a launch.

The series are those of cAdvisor, as every kubelet exports them; the pause container and the sums that cAdvisor makes
of a Pod are left out, or all would count twice. A run shorter than two scrapes has left nothing to take a rate of, and
is not known.
"""

import math
from datetime import datetime, timedelta
from typing import Any, Final

import aiohttp
import msgspec
from msgspec import Struct

from dispatcher.model.cache_history import Use
from dispatcher.model.errors import DispatcherError

ANSWER_SECONDS: Final = 5
LARGEST_ANSWER: Final = 2**20
SERIES: Final = '{{namespace={namespace},pod={pod},container!="",container!="POD"}}[{milliseconds}ms]'
ONCE: Final = "max by (container, id) "
"""A node may be scraped by two jobs. `id` is the cgroup: another one after each restart of the container."""
CPU: Final = f"sum({ONCE}(rate(container_cpu_usage_seconds_total{SERIES})))"
SCRAPED: Final = f"container_memory_working_set_bytes{SERIES}"
MEMORY: Final = f"sum({ONCE}(sum_over_time({SCRAPED}))) / max(sum by (container) ({ONCE}(count_over_time({SCRAPED}))))"
"""Over the scrapes of the container that had most: one that ran for a part of the time counts for that part."""


class PrometheusFault(DispatcherError):
    """No answer in time, no answer of a Prometheus, or an error of its own."""


class Sample(Struct, frozen=True):
    value: tuple[float, str]


class Result(Struct, frozen=True, rename={"kind": "resultType"}):
    kind: str
    result: list[Sample]


class Reply(Struct, frozen=True):
    """`/api/v1/query`, as the HTTP API of Prometheus has it."""

    status: str
    data: Result | None = None
    error: str = ""


class Prometheus:
    """`url`: its root; the API is below it."""

    def __init__(self, url: str) -> None:
        self._url = f"{url.rstrip('/')}/api/v1/query"
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS))

    async def close(self) -> None:
        await self._session.close()

    async def use_of(self, namespace: str, pod: str, began: datetime, ended: datetime) -> Use | None:
        """Mean use of a Pod over that time; None: nothing is known of it. PrometheusFault."""
        milliseconds = max(1, (ended - began) // timedelta(milliseconds=1))
        names = {"namespace": quoted(namespace), "pod": quoted(pod), "milliseconds": milliseconds}
        cpu = await self._ask(CPU.format(**names), ended)
        memory = await self._ask(MEMORY.format(**names), ended)
        return None if cpu is None or memory is None else Use(cpu, memory)

    async def _ask(self, query: str, at: datetime) -> float | None:
        """One number as of that time; None: there is no such series."""
        try:
            asked = {"query": query, "time": f"{at.timestamp():.3f}"}
            async with self._session.post(self._url, data=asked, allow_redirects=False) as answer:
                reply = msgspec.json.decode(await read_bounded(answer), type=Reply)
        except (aiohttp.ClientError, TimeoutError, OSError) as fault:
            raise PrometheusFault(f"PROMETHEUS_URL: {self._url}: {type(fault).__name__}: {fault}") from fault
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
            raise PrometheusFault(f"PROMETHEUS_URL: {self._url}: {answer.status}, not an answer: {fault}") from fault
        if answer.status != 200 or reply.status != "success" or reply.data is None:
            raise PrometheusFault(f"PROMETHEUS_URL: {self._url}: {answer.status} {reply.error[:300]}")
        return number(reply.data.result[0].value[1]) if reply.data.result else None


async def read_bounded(answer: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in answer.content.iter_chunked(65536):
        body += chunk
        if len(body) > LARGEST_ANSWER:
            raise aiohttp.ClientPayloadError(f"more than {LARGEST_ANSWER} bytes")
    return bytes(body)


def quoted(text: str) -> Any:
    """As PromQL has strings: those of JSON are some of Go's."""
    return msgspec.json.encode(text).decode()


def number(written: str) -> float | None:
    """None: not a number that a machine could have used."""
    try:
        found = float(written)
    except ValueError:
        return None
    return found if math.isfinite(found) and found >= 0 else None
