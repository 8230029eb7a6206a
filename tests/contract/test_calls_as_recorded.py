"""The embedded cluster answers every recorded call as the real one did."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.contract.wire import Wire, opened
from tests.controlplane.calls import RECORDED, Call
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.sides import BOTH_SIDES

pytestmark = BOTH_SIDES
Json = dict[str, Any]
CONTAINER = {"name": "task", "image": "none:1"}
POD = {"restartPolicy": "Never", "containers": [CONTAINER], "schedulerName": "nobody"}
BODIES: dict[str, Callable[[str], Json]] = {
    "jobs": lambda name: {"metadata": {"name": name}, "spec": {"suspend": True, "template": {"spec": POD}}},
    "pods": lambda name: {"metadata": {"name": name}, "spec": POD},
    "nodes": lambda name: {"metadata": {"name": name}},
    "leases": lambda name: {"metadata": {"name": name}, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 9}},
    "priorityclasses": lambda name: {"metadata": {"name": name}, "value": 5},
    "resourcequotas": lambda name: {"metadata": {"name": name}, "spec": {"hard": {"pods": "5"}}},
    "configmaps": lambda name: {"metadata": {"name": name}, "data": {"a": "b"}},
    "events": lambda name: {
        "metadata": {"name": name},
        "involvedObject": {"kind": "Job", "namespace": name.removeprefix("recorded-"), "name": "a"},
    },
    "secrets": lambda name: {"metadata": {"name": name}, "stringData": {"a": "b"}},
}
VALUES = {"labelSelector": "a=b", "limit": "2", "timeout": "8s", "timeoutSeconds": "1"}
METHODS = {"create": "POST", "get": "GET", "list": "GET", "watch": "GET", "delete": "DELETE", "update": "PUT"}


class Asking:
    """One call in a namespace of its own.

    Objects that the call needs are made before. Objects that must be missing are not made.
    """

    def __init__(self, wire: Wire, call: Call) -> None:
        self._wire = wire
        self._call = call
        self._resource, _, self._part = call.resource.partition("/")
        self._name = f"recorded-{wire.namespace}"

    async def ask(self) -> int:
        if self._call.resource == "selfsubjectaccessreviews":
            asked = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}
            return (await self._wire.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", asked)).status
        made = await self._prepare()
        if self._call.verb == "watch":
            return await self._watch(made)
        body = None if self._call.verb in {"get", "list"} else self._body(made)
        answer = await self._wire.ask(METHODS[self._call.verb], self._path(), body, params=await self._query(made))
        return answer.status

    async def _prepare(self) -> Json:
        """The object of the call, made if the call needs it. A call for a page needs three objects."""
        call, make = self._call, BODIES[self._resource]
        if call.code == 404 or (call.verb == "create" and call.code != 409):
            return make(self._name)
        for number in range(2 if "continue" in call.query else 0):
            labelled = make(f"{self._name}-{number}")
            labelled["metadata"]["labels"] = {"a": "b"}
            await self._wire.made(self._resource, labelled)
        return await self._wire.made(self._resource, make(self._name))

    def _path(self) -> str:
        named = self._call.verb in {"get", "delete", "update"}
        path = self._resource + (f"/{self._name}" if named else "")
        return f"{path}/{self._part}" if self._part else path

    def _body(self, made: Json) -> Json:
        call = self._call
        if call.verb == "delete":
            wrong = {"preconditions": {"uid": "other"}} if call.code == 409 else {}
            return {"propagationPolicy": "Background", **wrong}
        body = BODIES[self._resource](self._name) if call.verb == "create" else json.loads(json.dumps(made))
        if call.code == 422:
            body["spec"]["backoffLimit"] = -1
        if call.resource == "nodes/status":
            del body["metadata"]["resourceVersion"]  # a controller also writes to a new node
        if call.verb == "update" and call.code == 409:
            body["metadata"]["resourceVersion"] = "1"
        return dict(body)

    async def _query(self, made: Json) -> dict[str, str]:
        query = dict(part.partition("=")[::2] for part in self._call.query.split())
        field = "metadata.name" if self._resource == "configmaps" else "spec.nodeName"
        values = {**VALUES, "fieldSelector": f"{field}=a"}
        if "resourceVersion" in query:
            values["resourceVersion"] = str(made["metadata"]["resourceVersion"])
        if "continue" in query:
            first = await self._wire.get(self._resource, limit="1", labelSelector="a=b")
            values["continue"] = first.body["metadata"]["continue"]
        return {name: value or values[name] for name, value in query.items()}

    async def _watch(self, made: Json) -> int:
        query = await self._query(made)
        return (await self._wire.get(self._path(), **query)).status


@pytest.mark.parametrize("call", sorted(RECORDED), ids=lambda call: f"{call.verb}-{call.resource}-{call.code}")
async def test_a_recorded_call_is_answered_as_recorded(control_plane: ControlPlane, namespace: str, call: Call) -> None:
    async with opened(control_plane, namespace) as wire:
        try:
            assert await Asking(wire, call).ask() == call.code
        finally:
            if call.resource.startswith(("nodes", "priorityclasses")):
                await wire.delete(f"{call.resource.partition('/')[0]}/recorded-{namespace}")
