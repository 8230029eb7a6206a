"""Asks Prometheus for the resources that a Pod really used. The answer is advice: a fault here stops no launch.

The series come from cAdvisor, as every kubelet exports them. The pause container and cAdvisor's sums over a Pod are
left out, because everything would count twice. A run shorter than two scrapes has no rate, so its use is unknown.

Only this file calls the HTTP API of Prometheus.
"""

import math
from datetime import datetime, timedelta
from typing import Any, Final

import aiohttp
import msgspec
from msgspec import Struct

from dispatcher.model.caches import Use
from dispatcher.model.errors import DispatcherError

ANSWER_SECONDS: Final = 5
"""Limit of an answer, in seconds."""
LARGEST_ANSWER: Final = 2**20
"""Bytes of an answer, at most."""
SERIES: Final = '{{namespace={namespace},pod={pod},container!="",container!="POD"}}[{milliseconds}ms]'
ONCE: Final = "max by (container, id) "
"""Counts each container once, even if two scrape jobs read a node. `id` is the cgroup, new after each restart."""
METRICS: Final = ("container_cpu_usage_seconds_total", "container_memory_working_set_bytes")
"""The metrics of cAdvisor that real use is computed from."""
CPU: Final = f"sum({ONCE}(rate(container_cpu_usage_seconds_total{SERIES})))"
SCRAPED: Final = f"container_memory_working_set_bytes{SERIES}"
MEMORY: Final = f"sum({ONCE}(sum_over_time({SCRAPED}))) / max(sum by (container) ({ONCE}(count_over_time({SCRAPED}))))"
"""Average over the scrapes of the container with the most scrapes. A container that ran only for a part of the time
counts only for that part.
"""


class PrometheusFault(DispatcherError):
    """No answer in time, an answer that is not Prometheus', or an error that Prometheus reports."""


class QuerySample(Struct, frozen=True):
    value: tuple[float, str]


class Result(Struct, frozen=True, rename={"kind": "resultType"}):
    kind: str
    result: list[QuerySample]


class QueryReply(Struct, frozen=True):
    """Answer of `/api/v1/query` (HTTP API of Prometheus)."""

    status: str
    data: Result | None = None
    error: str = ""


class Prometheus:
    """Queries to one Prometheus. `url`: its root, without `/api`."""

    def __init__(self, url: str) -> None:
        self._url = f"{url.rstrip('/')}/api/v1/query"
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS))

    async def close(self) -> None:
        await self._session.close()

    async def use_of(self, namespace: str, pod: str, began: datetime, ended: datetime) -> Use | None:
        """Mean use of a Pod from `began` to `ended`; None if it is unknown. Raises PrometheusFault."""
        milliseconds = max(1, (ended - began) // timedelta(milliseconds=1))
        names = {"namespace": quoted(namespace), "pod": quoted(pod), "milliseconds": milliseconds}
        cpu = await self._ask(CPU.format(**names), ended)
        memory = await self._ask(MEMORY.format(**names), ended)
        return None if cpu is None or memory is None else Use(cpu, memory)

    async def knows(self, metric: str) -> bool:
        """Whether there is a recent sample of the metric. Raises PrometheusFault."""
        return bool(await self._ask(f"count({metric})", None))

    async def _ask(self, query: str, at: datetime | None) -> float | None:
        """The number that a query gives for that time, or for now; None if there is no such series."""
        try:
            asked = {"query": query} | ({"time": f"{at.timestamp():.3f}"} if at else {})
            async with self._session.post(self._url, data=asked, allow_redirects=False) as answer:
                reply = msgspec.json.decode(await read_bounded(answer), type=QueryReply)
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
    """A string in PromQL, which has the syntax of Go. Each JSON string is a Go string, too."""
    return msgspec.json.encode(text).decode()


def number(written: str) -> float | None:
    """Reads a number. Returns None unless it is finite and not negative."""
    try:
        found = float(written)
    except ValueError:
        return None
    return found if math.isfinite(found) and found >= 0 else None
