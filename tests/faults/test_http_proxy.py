"""Each fault of the HTTP proxy on the real API server: the client's view, what the server did, and the hits."""

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

import aiohttp
import msgspec
import pytest
import pytest_asyncio

from tests.controlplane.api import Json
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.waiting import wait_for
from tests.faults import http_verbs as verbs
from tests.faults.http_proxy import Asked, KubeProxy, Verb, asks
from tests.faults.rules import Gate, chance, nth

LOST = aiohttp.ServerDisconnectedError


class Client:
    """A client behind the proxy: ConfigMaps of one namespace, with the administrator's token."""

    def __init__(self, proxy: KubeProxy, session: aiohttp.ClientSession, namespace: str) -> None:
        self.path = f"/api/v1/namespaces/{namespace}/configmaps"
        self._url = proxy.url
        self._session = session

    async def ask(self, method: str, path: str, body: Json | None = None, **options: float) -> tuple[int, Json]:
        timeout = aiohttp.ClientTimeout(total=options.get("seconds", 10))
        sent = None if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": "application/json"}
        async with self._session.request(method, self._url + path, data=sent, headers=headers, timeout=timeout) as a:
            return a.status, msgspec.json.decode(await a.read(), type=Json)

    async def create(self, name: str, **options: float) -> int:
        return (await self.ask("POST", self.path, {"metadata": {"name": name}}, **options))[0]

    async def names(self) -> set[str]:
        status, listed = await self.ask("GET", self.path)
        assert status == 200
        return {item["metadata"]["name"] for item in listed["items"]} - {"kube-root-ca.crt"}

    async def watch(self, seconds: float = 10) -> AsyncGenerator[Json, None]:
        """Events from now on. The first one has the status of the answer."""
        _, listed = await self.ask("GET", self.path)
        others = "metadata.name!=kube-root-ca.crt"  # the cluster makes it in each namespace, sooner or later
        since = {"watch": "1", "resourceVersion": listed["metadata"]["resourceVersion"], "fieldSelector": others}
        timeout = aiohttp.ClientTimeout(total=None, sock_read=seconds)
        async with self._session.get(self._url + self.path, params=since, timeout=timeout) as answer:
            yield {"type": "STATUS", "object": {"code": answer.status}}
            async for line in answer.content:
                yield msgspec.json.decode(line, type=Json)


@pytest_asyncio.fixture(loop_scope="session")
async def client(control_plane: ControlPlane, kube_proxy: KubeProxy, namespace: str) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {control_plane.admin_token}"}
    async with aiohttp.ClientSession(headers=headers, read_bufsize=1 << 20) as session:
        session._retry_connection = False  # a retry would hide the lost answers of these tests
        yield Client(kube_proxy, session, namespace)


@pytest.fixture
def truth(control_plane: ControlPlane, namespace: str) -> "Truth":
    return Truth(control_plane, namespace)


class Truth:
    """The API server's own view: requests that do not go through the proxy."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self._plane = plane
        self._path = f"/api/v1/namespaces/{namespace}/configmaps"

    async def names(self) -> set[str]:
        items = (await self._plane.admin("GET", self._path))["items"]
        return {item["metadata"]["name"] for item in items} - {"kube-root-ca.crt"}

    async def create(self, name: str) -> None:
        await self._plane.admin("POST", self._path, {"metadata": {"name": name}})


def test_request_is_described_by_kubernetes_verb_and_resource() -> None:
    jobs = "/apis/batch/v1/namespaces/a/jobs"
    told = [
        str(Asked(method, path, query))
        for method, path, query in [
            ("POST", jobs, {}),
            ("GET", jobs, {}),
            ("GET", jobs, {"watch": "1"}),
            ("GET", f"{jobs}/x", {}),
            ("DELETE", f"{jobs}/x", {}),
            ("PUT", f"{jobs}/x/status", {}),
            ("GET", "/api/v1/nodes", {"watch": "true"}),
            ("GET", "/api/v1/namespaces/a", {}),
            ("GET", "/readyz", {}),
        ]
    ]
    assert told == [
        "create jobs", "list jobs", "watch jobs", "get jobs x", "delete jobs x", "update jobs/status x",
        "watch nodes", "get namespaces a", "list",
    ]  # fmt: skip


async def test_proxy_without_rules_passes_requests_and_token(client: Client, truth: Truth) -> None:
    assert await client.create("a") == 201
    assert await client.create("a") == 409
    assert await client.names() == await truth.names() == {"a"}


@pytest.mark.parametrize(
    ("verb", "told", "made", "again"),
    [
        (verbs.drop_before, "create configmaps", set(), 201),
        (verbs.drop_after, "create configmaps 201", {"a"}, 409),
    ],
    ids=["drop before", "drop after"],
)
async def test_request_without_an_answer_is_done_or_not(
    client: Client, truth: Truth, kube_proxy: KubeProxy, verb: Verb, told: str, made: set[str], again: int,
) -> None:  # fmt: skip
    rule = kube_proxy.add(verb, asks("create", "configmaps"), nth(1))
    with pytest.raises(LOST):
        await client.create("a")
    assert (rule.told, await truth.names()) == ([told], made)
    assert await client.create("a") == again
    assert (rule.hits, rule.seen) == (1, 2)


async def test_hold_rule_forwards_after_the_client_gave_up(client: Client, truth: Truth, kube_proxy: KubeProxy) -> None:
    gate = Gate()
    rule = kube_proxy.add(verbs.hold(gate), asks("create", "configmaps"))
    with pytest.raises(TimeoutError):
        await client.create("late", seconds=0.2)
    await wait_for(lambda: gate.abandoned == 1, "the proxy has seen the client go")
    assert await truth.names() == set()
    gate.open()
    await wait_for(lambda: rule.hits == 1, "the late request has landed")
    assert (rule.told, await truth.names()) == (["create configmaps 201"], {"late"})


async def test_status_rule_answers_with_its_code_and_body(client: Client, truth: Truth, kube_proxy: KubeProxy) -> None:
    rule = kube_proxy.add(verbs.status(429, {"reason": "TooManyRequests"}), asks("create", "configmaps"), nth(1))
    page = kube_proxy.add(verbs.status(502, b"<html>"), asks("list", "configmaps"), nth(1))
    assert await client.ask("POST", client.path, {"metadata": {"name": "a"}}) == (429, {"reason": "TooManyRequests"})
    with pytest.raises(msgspec.DecodeError):
        await client.names()
    assert (rule.hits, page.hits, await truth.names()) == (1, 1, set())


async def test_a_frozen_watch_goes_silent_and_stays_open(client: Client, truth: Truth, kube_proxy: KubeProxy) -> None:
    gate = Gate()
    rule = kube_proxy.add(verbs.freeze(gate, after=1), asks("watch", "configmaps"))
    async with aclosing(client.watch(seconds=20)) as events:
        await anext(events)
        await truth.create("a")
        assert (await anext(events))["object"]["metadata"]["name"] == "a"
        await truth.create("b")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await anext(events)
    assert rule.hits == 1
    await wait_for(lambda: gate.abandoned == 1 or not gate.held, "the proxy has seen the client go")


async def test_a_frozen_request_is_never_answered(client: Client, truth: Truth, kube_proxy: KubeProxy) -> None:
    rule = kube_proxy.add(verbs.freeze(Gate()), asks("create", "configmaps"))
    with pytest.raises(TimeoutError):
        await client.create("a", seconds=0.3)
    assert (rule.hits, await truth.names()) == (1, set())


async def test_gone_is_answered_before_and_within_a_watch(client: Client, truth: Truth, kube_proxy: KubeProxy) -> None:
    before = kube_proxy.add(verbs.gone, asks("watch", "configmaps"), nth(1))
    within = kube_proxy.add(verbs.gone_in_stream(after=1), asks("watch", "configmaps"), nth(1))
    async with aclosing(client.watch()) as events:
        assert (await anext(events))["object"] == {"code": 410}
    async with aclosing(client.watch()) as events:
        assert (await anext(events))["object"] == {"code": 200}
        await truth.create("a")
        assert (await anext(events))["type"] == "ADDED"
        told = [event async for event in events]
    assert [(event["type"], event["object"]["code"]) for event in told] == [("ERROR", 410)]
    assert (before.hits, within.hits) == (1, 1)


async def test_replayed_list_shows_an_earlier_state(client: Client, truth: Truth, kube_proxy: KubeProxy) -> None:
    tape = verbs.Tape()
    kept = kube_proxy.add(tape.record, asks("list", "configmaps"), nth(1))
    played = kube_proxy.add(tape.replay, asks("list", "configmaps"), nth(1))
    await client.names()
    await truth.create("a")
    assert await client.names() == set()
    assert await client.names() == {"a"}
    assert (kept.hits, played.hits) == (1, 1)


async def test_every_second_event_is_dropped(client: Client, truth: Truth, kube_proxy: KubeProxy) -> None:
    rule = kube_proxy.add(verbs.drop_event(2), asks("watch", "configmaps"))
    async with aclosing(client.watch()) as events:
        await anext(events)
        for name in "abcde":
            await truth.create(name)
        seen = [(await anext(events))["object"]["metadata"]["name"] for _ in range(3)]
    assert (seen, rule.hits) == (["a", "c", "e"], 2)


async def test_watch_ends_at_the_server_when_its_client_disconnects(
    control_plane: ControlPlane, client: Client, namespace: str
) -> None:
    async with aclosing(client.watch()) as events:
        await anext(events)

    def has_ended() -> bool:
        return bool(control_plane.audit(verb="watch", resource="configmaps", namespace=namespace))

    await wait_for(has_ended, "the API server's watch is complete")


@pytest.mark.slow
async def test_unreachable_server_breaks_the_connection(client: Client, control_plane: ControlPlane) -> None:
    await control_plane.stop_api_server()
    try:
        with pytest.raises(LOST):
            await client.create("a")
    finally:
        await control_plane.start_api_server()


async def test_first_matching_rule_applies_and_an_ended_rule_does_not(client: Client, kube_proxy: KubeProxy) -> None:
    first = kube_proxy.add(verbs.status(500), asks("create", "configmaps"), nth(2, 4), "first")
    second = kube_proxy.add(verbs.status(503), lambda asked: asked.method == "POST", name="second")
    assert [await client.create("a") for _ in range(4)] == [503, 500, 503, 500]
    second.end()
    first.end()
    assert await client.create("a") == 201
    assert kube_proxy.rules.hits() == {"first": 2, "second": 2}
    assert repr(first) == "first: 2 hits of 4 that match"


def test_chance_draws_from_the_random_of_the_test() -> None:
    turns, draw = chance(0.5, random.Random(3)), random.Random(3)
    assert [turns(number) for number in range(20)] == [draw.random() < 0.5 for _ in range(20)]
