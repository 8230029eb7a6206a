"""The wire protocol of an API server, as its contract asks for it: status and body as they came, watches event by
event.

A path is `RESOURCE[/NAME[/SUBRESOURCE]]` in the namespace of the test, or begins with a slash. A refusal is an answer
and raises nothing. Every wait for an event has a limit.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import aiohttp
import msgspec

from tests.controlplane.api import MERGE_PATCH, Json
from tests.controlplane.cluster import ControlPlane

SECONDS = 10
HELD = "tests.example/held"
GROUPS = {
    "jobs": "apis/batch/v1", "leases": "apis/coordination.k8s.io/v1",
    "priorityclasses": "apis/scheduling.k8s.io/v1",
}  # fmt: skip
CLUSTER_WIDE = {"nodes", "namespaces", "priorityclasses"}


class Answer(NamedTuple):
    status: int
    body: Json

    @property
    def refusal(self) -> tuple[int, str]:
        """Status code and reason of a refusal; every refusal is a Status of failure."""
        told = {key: self.body.get(key) for key in ("kind", "apiVersion", "status", "code")}
        assert told == {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": self.status}, self
        assert self.body["message"]
        return self.status, self.body.get("reason", "")

    @property
    def causes(self) -> list[tuple[str, str]]:
        """Reason and field of each cause of a refusal, without repetitions."""
        told = [(cause.get("reason", ""), cause.get("field", "")) for cause in self.body["details"].get("causes", [])]
        return list(dict.fromkeys(told))


class Event(NamedTuple):
    type: str
    object: Json

    @property
    def name(self) -> str:
        return str(self.object["metadata"]["name"])

    @property
    def version(self) -> int:
        return version(self.object)

    @property
    def what(self) -> tuple[str, str]:
        return self.type, self.name


class Watch:
    """A watch that the server accepted."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer
        self.content_type = answer.content_type

    async def next(self) -> Event:
        """The next event. EOFError: the server ended the watch. TimeoutError: nothing came."""
        async with asyncio.timeout(SECONDS):
            line = await self._answer.content.readline()
        if not line:
            raise EOFError("the watch has ended")
        event = msgspec.json.decode(line, type=Json)
        assert set(event) == {"type", "object"}, event
        return Event(event["type"], event["object"])

    async def take(self, count: int) -> list[Event]:
        return [await self.next() for _ in range(count)]

    async def rest(self) -> list[Event]:
        """All events until the server ends the watch."""
        found: list[Event] = []
        while True:
            try:
                found.append(await self.next())
            except EOFError:
                return found


class Wire:
    """The administrator at one control plane, in one namespace."""

    def __init__(self, plane: ControlPlane, namespace: str, session: aiohttp.ClientSession) -> None:
        self.plane = plane
        self.namespace = namespace
        self._session = session

    def path(self, path: str) -> str:
        if path.startswith("/"):
            return path
        resource = path.partition("/")[0]
        place = "" if resource in CLUSTER_WIDE else f"/namespaces/{self.namespace}"
        return f"/{GROUPS.get(resource, 'api/v1')}{place}/{path}"

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        params: Mapping[str, str] | None = None,
        *,
        content_type: str = "application/json",
        token: str | None = "",
    ) -> Answer:
        """Sends bytes as they are, anything else as JSON. `token`: empty: the administrator's; None: none."""
        sent = body if isinstance(body, bytes) or body is None else msgspec.json.encode(body)
        headers = {"Content-Type": content_type}
        if token is not None:
            headers["Authorization"] = f"Bearer {token or self.plane.admin_token}"
        url = self.plane.url + self.path(path)
        async with self._session.request(method, url, data=sent, params=params, headers=headers) as answer:
            return Answer(answer.status, read(await answer.read()))

    async def get(self, path: str, **params: str) -> Answer:
        return await self.ask("GET", path, None, params)

    async def post(self, path: str, body: object, **params: str) -> Answer:
        return await self.ask("POST", path, body, params)

    async def put(self, path: str, body: object, **params: str) -> Answer:
        return await self.ask("PUT", path, body, params)

    async def patch(self, path: str, change: object) -> Answer:
        return await self.ask("PATCH", path, change, content_type=MERGE_PATCH)

    async def delete(self, path: str, options: object = None, **params: str) -> Answer:
        return await self.ask("DELETE", path, options, params)

    # Calls that must succeed

    async def made(self, resource: str, *bodies: Json) -> Json:
        """Creates all objects; the last one as it came back."""
        for body in bodies:
            answer = await self.post(resource, body)
            assert answer.status == 201, answer
        return answer.body

    async def found(self, path: str, **params: str) -> Json:
        answer = await self.get(path, **params)
        assert answer.status == 200, answer
        return answer.body

    async def changed(self, path: str, change: Json) -> Json:
        answer = await self.patch(path, change)
        assert answer.status == 200, answer
        return answer.body

    async def names(self, resource: str, **params: str) -> list[str]:
        return names(await self.found(resource, **params))

    async def now(self, resource: str) -> str:
        """The version from which a watch shows what comes next."""
        return str((await self.found(resource))["metadata"]["resourceVersion"])

    async def seen(self, resource: str, made: Json) -> None:
        """Waits until the cache, which serves lists and watches of version 0, has this object."""

        async def is_so() -> bool:
            return version(await self.found(resource, resourceVersion="0")) >= version(made)

        await self.plane.wait_for(is_so, f"version 0 of {resource} has caught up", SECONDS)

    async def gone(self, path: str) -> None:
        async def is_so() -> bool:
            return (await self.get(path)).status == 404

        await self.plane.wait_for(is_so, f"{path} is gone", SECONDS)

    async def bind(self, pod: str, node: str, **meta: str) -> Answer:
        binding = {"metadata": {"name": pod, **meta}, "target": {"kind": "Node", "name": node}}
        return await self.post(f"pods/{pod}/binding", binding)

    @asynccontextmanager
    async def watch(self, path: str, **params: str) -> AsyncIterator[Watch]:
        asked = {"watch": "true", "timeoutSeconds": "30"} | params
        url, headers = self.plane.url + self.path(path), {"Authorization": f"Bearer {self.plane.admin_token}"}
        async with self._session.get(url, params=asked, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            yield Watch(answer)


@asynccontextmanager
async def opened(plane: ControlPlane, namespace: str) -> AsyncIterator[Wire]:
    """A connection to the plane. The embedded side of the contract speaks plain HTTP and has no certificate."""
    tls = ssl.create_default_context(cafile=str(plane.ca_file)) if plane.url.startswith("https:") else True
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=tls),
        timeout=aiohttp.ClientTimeout(total=40),
        read_bufsize=4 << 20,  # a line of a watch is a whole object
    ) as session:
        yield Wire(plane, namespace, session)


def read(text: bytes) -> Json:
    """The JSON object of the body. Any other body (unknown paths get plain words) becomes the message of an object."""
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError:
        found = None
    return found if isinstance(found, dict) else {"message": text.decode(errors="replace")}


def version(found: Json) -> int:
    """The resource version of an object or a list, as a number for comparisons."""
    return int(found["metadata"]["resourceVersion"])


def names(listed: Json) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"]]


# Objects that nothing works on: no scheduler takes the Pod, the Job is suspended


def a_secret(name: str, labels: Mapping[str, str] | None = None, **fields: Any) -> Json:
    return {"metadata": {"name": name, "labels": dict(labels or {})}, **fields}


def a_pod(name: str, /, **spec: Any) -> Json:
    containers = [{"name": "task", "image": "localhost/x:1"}]
    return {"metadata": {"name": name}, "spec": {"schedulerName": "nobody", "containers": containers, **spec}}


def a_job(name: str, spec: Json | None = None, pod: Json | None = None, /, **container: Any) -> Json:
    containers = [{"name": "task", "image": "localhost/x:1", **container}]
    asked = {"restartPolicy": "Never", "schedulerName": "nobody", "containers": containers, **(pod or {})}
    return {"metadata": {"name": name}, "spec": {"suspend": True, "template": {"spec": asked}, **(spec or {})}}
