"""Collects a `DemoView`: rows from Postgres, nodes and Pods from the API server, reasons from /metrics."""

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import aiohttp
import asyncpg
import msgspec

from dispatcher.kube.client import KubeClient
from dispatcher.model.errors import ClusterError
from dispatcher.model.identity import LABEL_INSTALLATION
from dispatcher.model.quantity import parse_quantity
from dispatcher.pg.queries import query
from dispatcher.programs.demo.view import DemoView, NodeLoad, Row

Json = dict[str, Any]
SAMPLE: Final = re.compile(r"^(dispatcher_waiting_tasks|dispatcher_parked_tasks)\{(.*)\} (\S+)$", re.MULTILINE)
LABEL: Final = re.compile(r'(\w+)="([^"]*)"')
OF_DATABASE: Final = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
AWAY: Final = (OSError, TimeoutError, *OF_DATABASE, aiohttp.ClientError, ClusterError)


class Observer:
    """Makes views. A part that cannot be read now is shown as it was. `passing`: park reasons that the janitor ends."""

    def __init__(self, database_url: str, client: KubeClient, installation: str, passing: frozenset[str]) -> None:
        self._database_url = database_url
        self._client = client
        self._passing = passing
        self._mine = {"labelSelector": f"{LABEL_INSTALLATION}={installation}"}
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2))
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None
        self._last = DemoView()
        self.metrics_url = ""

    async def close(self) -> None:
        await self._session.close()
        self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def observe(self) -> DemoView:
        rows, nodes = self._last.rows, self._last.nodes
        reasons: Mapping[tuple[str, str], int] | None = None
        parked = 0
        try:
            # Reasons first: if a row moves on afterwards, the sums differ, and the demo does not count as over.
            reasons, parked = await self._reasons()
            rows = await self._rows()
            nodes = await self._nodes()
        except AWAY:
            reasons = None
            # A connection that broke during an answer is useless, and the driver may take it for open.
            self._disconnect()
        self._last = DemoView(rows, nodes, reasons, parked)
        return self._last

    async def _rows(self) -> list[Row]:
        if self._connection is None or self._connection.is_closed():
            self._connection = await asyncpg.connect(self._database_url, timeout=5)
        found = await self._connection.fetch(query("rows", "demo"), timeout=5)
        return [
            Row(row["id"], row["queue"], row["status"], row["attempt"], row["error"],
                json.loads(row["result"]) if row["result"] else None, row["node_name"], row["seconds"])
            for row in found
        ]  # fmt: skip

    async def _nodes(self) -> list[NodeLoad]:
        pods = Counter[str]()
        used = Counter[str]()
        for pod in await self._list("/api/v1/pods", self._mine):
            name = pod["spec"].get("nodeName")
            if name and pod["status"].get("phase") not in {"Succeeded", "Failed"}:
                pods[name] += 1
                used[name] += int(1000 * cores_of(pod))
        return [
            NodeLoad(name, float(parse_quantity(node["status"]["allocatable"]["cpu"])), used[name] / 1000, pods[name])
            for node in await self._list("/api/v1/nodes", {})
            if (name := node["metadata"]["name"]) and node["status"].get("allocatable")
        ]

    async def _list(self, path: str, params: Mapping[str, str]) -> list[Json]:
        reply = await self._client.request("GET", path, params=params, seconds=5)
        found: list[Json] = msgspec.json.decode(reply.expect(f"list {path}"))["items"]
        return found

    async def _reasons(self) -> tuple[dict[tuple[str, str], int], int]:
        async with self._session.get(self.metrics_url) as answer:
            text = await answer.text(errors="replace")  # another program may have the port, until ours listens
        reasons, parked = dict[tuple[str, str], int](), 0
        for name, labels, value in SAMPLE.findall(text):
            label = dict(LABEL.findall(labels))
            if name == "dispatcher_parked_tasks":
                parked += int(float(value)) if label["reason"] not in self._passing else 0
            else:
                reasons[label["queue"], label["reason"]] = int(float(value))
        return reasons, parked


def cores_of(pod: Json) -> float:
    asked = [(one.get("resources") or {}).get("requests") or {} for one in pod["spec"]["containers"]]
    return sum(float(parse_quantity(str(one.get("cpu", 0)))) for one in asked)
