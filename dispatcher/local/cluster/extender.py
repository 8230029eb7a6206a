"""Asks a scheduler extender as kube-scheduler does: `k8s.io/kube-scheduler/extender/v1`, nodeCacheCapable."""

from typing import Any, Final

import aiohttp
import msgspec
from msgspec import Struct

Json = dict[str, Any]
POINTS: Final = 10
"""Worth of one point of an extender of weight 1: MaxNodeScore / MaxExtenderPriority."""
FAULTS: Final = (aiohttp.ClientError, TimeoutError, OSError, msgspec.MsgspecError)


class FilterResult(Struct, frozen=True, rename="pascal"):
    node_names: list[str] | None = None
    failed_nodes: dict[str, str] | None = None
    failed_and_unresolvable_nodes: dict[str, str] | None = None
    error: str = ""


class HostPriority(Struct, frozen=True, rename="pascal"):
    host: str
    score: int


class ExtenderFault(Exception):
    """The extender did not answer, or answered with an error. The Pod waits."""


class Extender:
    """One extender. `url`: its prefix, below which it serves `filter` and `prioritize`."""

    def __init__(self, url: str, weight: int = 1, seconds: float = 5) -> None:
        self._url = url.rstrip("/")
        self._weight = weight
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=seconds))

    async def close(self) -> None:
        await self._session.close()

    async def filter(self, pod: Json, names: list[str]) -> FilterResult:
        """The nodes that pass. ExtenderFault: there is no valid answer."""
        try:
            found = msgspec.json.decode(await self._ask("filter", pod, names), type=FilterResult)
        except FAULTS as fault:
            raise ExtenderFault(f"extender {self._url}: {fault}") from fault
        if found.error:
            raise ExtenderFault(f"extender {self._url}: {found.error}")
        if unknown := set(found.node_names or ()) - set(names):
            raise ExtenderFault(f"extender {self._url} claims a filtered node {min(unknown)!r} not found in the input")
        return found

    async def prioritize(self, pod: Json, names: list[str]) -> dict[str, float]:
        """Points by node, to be added to the scheduler's own. A fault gives no points, and no error."""
        if len(names) < 2:
            return {}
        try:
            found = msgspec.json.decode(await self._ask("prioritize", pod, names), type=list[HostPriority] | None)
        except FAULTS:
            return {}
        points: dict[str, float] = {}
        for one in found or ():
            points[one.host] = points.get(one.host, 0) + one.score * self._weight * POINTS
        return points

    async def _ask(self, verb: str, pod: Json, names: list[str]) -> bytes:
        body = msgspec.json.encode({"Pod": pod, "Nodes": None, "NodeNames": names})
        headers = {"Content-Type": "application/json"}
        async with self._session.post(f"{self._url}/{verb}", data=body, headers=headers) as answer:
            answer.raise_for_status()
            return await answer.read()
