"""The embedded cluster in states that a test cannot bring about in a real cluster."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import aiohttp
import msgspec
import pytest

from dispatcher_demo.cluster.api import Api
from dispatcher_demo.cluster.cluster import EmbeddedCluster
from dispatcher_demo.cluster.kinds import JOB, NAMESPACE, POD, SECRET, Target
from dispatcher_demo.cluster.registry import Registry, Storage
from tests.controlplane.waiting import wait_for
from tests.rig.loopback import on_loopback

Json = dict[str, Any]
HELD = {"finalizers": ["tests.example/held"]}
SECRETS = "/api/v1/namespaces/default/secrets"
REMEMBERED = 3
POD_SPEC = {"restartPolicy": "Never", "containers": [{"name": "a", "image": "x:1"}]}


class Forgetful:
    """An API server with ten Secrets that remembers only three changes of a kind."""

    def __init__(self, url: str, session: aiohttp.ClientSession, first: int) -> None:
        self._url = url
        self._session = session
        self.first = str(first)

    async def ask(self, **params: str) -> tuple[int, list[Json]]:
        """The status, and the objects of the answer, line by line."""
        headers = {"Authorization": "Bearer secret"}
        async with self._session.get(self._url + SECRETS, params=params, headers=headers) as answer:
            return answer.status, [msgspec.json.decode(line) for line in (await answer.read()).splitlines()]


@pytest.fixture
async def forgetful() -> AsyncIterator[Forgetful]:
    registry = Registry(Storage(REMEMBERED), lambda: datetime.now(UTC))
    for name in ("default", "other"):
        registry.create(Target(NAMESPACE), {"metadata": {"name": name}})
    made = [registry.create(Target(SECRET, "default"), {"metadata": {"name": f"a{number}"}}) for number in range(10)]
    async with on_loopback(Api(registry, "secret").app()) as address, aiohttp.ClientSession() as session:
        yield Forgetful(f"http://{address}", session, made[0].version)


async def test_watch_from_a_forgotten_version_gets_an_error_in_its_stream(forgetful: Forgetful) -> None:
    status, (event,) = await forgetful.ask(watch="1", resourceVersion=forgetful.first, timeoutSeconds="5")
    assert (status, event["type"]) == (200, "ERROR")
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")


async def test_list_as_of_a_forgotten_version_is_gone(forgetful: Forgetful) -> None:
    status, (told,) = await forgetful.ask(resourceVersion=forgetful.first, resourceVersionMatch="Exact")
    assert (status, told["code"], told["reason"]) == (410, 410, "Expired")


async def test_remembered_changes_are_still_watched(forgetful: Forgetful) -> None:
    since = str(int(forgetful.first) + 6)
    status, events = await forgetful.ask(watch="1", resourceVersion=since, timeoutSeconds="1")
    assert (status, [event["object"]["metadata"]["name"] for event in events]) == (200, ["a7", "a8", "a9"])


async def test_job_that_cannot_have_its_pod_holds_up_no_other_job() -> None:
    """The Job's namespace is being deleted, and a finalizer keeps the Job there."""
    async with EmbeddedCluster() as cluster:
        registry, spec = cluster.registry, {"template": {"spec": POD_SPEC}, "suspend": True}
        registry.create(Target(NAMESPACE), {"metadata": {"name": "going"}})
        registry.create(Target(JOB, "going"), {"metadata": {"name": "stuck", **HELD}, "spec": spec})
        registry.delete(Target(NAMESPACE, "", "going"))
        registry.patch(Target(JOB, "going", "stuck"), {"spec": {"suspend": False}})
        registry.create(Target(JOB, "default"), {"metadata": {"name": "free"}, "spec": {**spec, "suspend": False}})
        await wait_for(lambda: placed(registry, "default"), "the other has its Pod")
        assert not placed(registry, "going")
        assert ("", "going") in registry.storage.all(NAMESPACE)
        registry.patch(Target(JOB, "going", "stuck"), {"metadata": {"finalizers": None}})
        await wait_for(lambda: ("", "going") not in registry.storage.all(NAMESPACE), "the namespace is gone")


def placed(registry: Registry, namespace: str) -> list[str]:
    """Names of the Pods in a namespace."""
    return [name for where, name in registry.storage.all(POD) if where == namespace]


async def test_namespace_is_deleted_with_its_objects() -> None:
    async with EmbeddedCluster() as cluster:
        registry = cluster.registry
        registry.create(Target(NAMESPACE), {"metadata": {"name": "going"}})
        registry.create(Target(SECRET, "going"), {"metadata": {"name": "a"}})
        registry.delete(Target(NAMESPACE, "", "going"))
        await wait_for(lambda: ("", "going") not in registry.storage.all(NAMESPACE), "the namespace is gone")
        assert not [key for key in registry.storage.all(SECRET) if key[0] == "going"]
