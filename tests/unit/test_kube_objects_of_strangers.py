"""One object of a stranger: it must keep nobody from reading the others of its list or watch."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.kube.client import AnswerTooLarge, KubeClient, Reply
from dispatcher.kube.objects import pod_reader, read_job, read_node
from dispatcher.kube.reflector import PAGE, Reflector, Resource, list_all
from dispatcher.kube.wire import DEEPEST, mended
from dispatcher.model.errors import ClusterAway
from tests.unit.wire import AT, a_condition, a_wire_job

DEEP = '{"f:a":' * 9_990 + "1" + "}" * 9_990
CONDITION = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet", "lastTransitionTime": AT}
OURS = {"labels": {"dispatcher.internal/installation": "dispatcher"}, "namespace": "jobs"}
PODS = Resource("pods", "/api/v1/pods", pod_reader("jobs", "dispatcher"))
NODES = Resource("nodes", "/api/v1/nodes", read_node)


def written(name: str, metadata: str = "", spec: str = '{"nodeName": "n"}', status: str = "{}") -> str:
    meta = json.dumps({"name": name, "creationTimestamp": AT, "resourceVersion": "7", **OURS})[:-1]
    return f'{{"metadata": {meta}{metadata}}}, "spec": {spec}, "status": {status}}}'


GRACE = '{"nodeName": "n", "terminationGracePeriodSeconds": -300000000000}'
BAD = {
    "deep managed fields": written("bad", f', "managedFields": [{{"manager": "a", "fieldsV1": {DEEP}}}]'),
    "after the year 9999": written("bad", ', "deletionTimestamp": "10000-01-01T00:59:59Z"'),
    "before the year 0": written("bad", status='{"startTime": "-0001-12-31T12:00:00Z"}'),
    "the year 0": written("bad", status='{"startTime": "0000-06-01T00:00:00Z"}'),
    "a negative grace": written("bad", spec=GRACE, status=json.dumps({
        "phase": "Failed", "conditions": [CONDITION], "containerStatuses": [
            {"name": "task", "state": {"terminated": {"exitCode": 1, "finishedAt": AT}}}]})),
}  # fmt: skip


class Server(KubeClient):
    """Lists and watches these texts of objects, and takes no page with more objects than `most`."""

    def __init__(self, listed: list[str], told: list[str], most: int = PAGE) -> None:
        self.listed, self.told, self.most = listed, told, most
        self.limits: list[int] = []

    async def request(
        self, method: str, path: str, body: bytes | None = None, params: Mapping[str, str] | None = None,
        seconds: float = 30,
    ) -> Reply:  # fmt: skip
        asked = params or {}
        limit, begin = int(asked["limit"]), int(asked.get("continue", 0))
        self.limits.append(limit)
        if limit > self.most:
            raise AnswerTooLarge("more than it takes")
        page, end = self.listed[begin : begin + limit], begin + limit
        meta = {"resourceVersion": "5", "continue": str(end) if end < len(self.listed) else ""}
        return Reply(200, f'{{"metadata": {json.dumps(meta)}, "items": [{",".join(page)}]}}'.encode())

    async def watch(self, path: str, params: Mapping[str, str], seconds: float) -> AsyncGenerator[bytes, None]:
        yield b""
        for one in self.told:
            yield f'{{"type": "ADDED", "object": {one}}}\n'.encode()
        await asyncio.Event().wait()


@pytest.mark.parametrize("bad", BAD)
async def test_list_and_watch_go_on_beside_an_object_that_nobody_expects(bad: str) -> None:
    good = [written(f"good-{number}") for number in range(2)]
    server, heard = Server([good[0], BAD[bad]], [BAD[bad], good[1]]), asyncio.Event()
    reflector = Reflector(server, PODS)
    reflector.store.on_each(lambda _, now: heard.set() if now is not None and now.name == "jobs/good-1" else None)
    following = asyncio.ensure_future(reflector.run())
    await asyncio.wait([following, asyncio.ensure_future(heard.wait())], return_when="FIRST_COMPLETED", timeout=10)
    following.cancel()
    assert (reflector.fault, sorted(reflector.store.view())) == ("", ["jobs/bad", "jobs/good-0", "jobs/good-1"])


@pytest.mark.parametrize(
    "job",
    [
        json.dumps(a_wire_job(metadata__managedFields="DEEP")).replace('"DEEP"', f'[{{"fieldsV1": {DEEP}}}]'),
        json.dumps(a_wire_job(status__conditions=[a_condition("Failed", at="10000-01-01T00:00:00Z")])),
    ],
    ids=["deep managed fields", "after the year 9999"],
)
def test_job_that_is_asked_for_by_itself_is_read_like_one_of_a_list(job: str) -> None:
    """A row asks for its own Jobs. A fault of ours there would end the cycle of all teams."""
    found = read_job(job.encode())
    assert found is not None
    assert found.uid == "u-1"


async def test_object_that_cannot_be_read_at_all_is_named() -> None:
    server = Server([written("good"), '{"metadata": {"name": "odd"}, "status": {"conditions": 7}}'], [])
    with pytest.raises(ClusterAway, match="list nodes: /odd cannot be read: Expected `array`"):
        await list_all(server, NODES)


@pytest.mark.parametrize(("most", "asked"), [(100, 1), (30, 3), (1, 7)])
async def test_page_that_is_too_large_is_asked_for_in_smaller_parts(most: int, asked: int) -> None:
    server = Server([written(f"p-{number}") for number in range(9)], [], most)
    found = await list_all(server, PODS)
    assert [one.name for one in found.items] == [f"jobs/p-{number}" for number in range(9)]
    assert len([limit for limit in server.limits if limit > most]) == asked - 1


async def test_object_that_is_too_large_by_itself_is_a_fault() -> None:
    with pytest.raises(AnswerTooLarge):
        await list_all(Server([written("p")], [], 0), PODS)


values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.sampled_from('a"\\{}[]:,\u20ac\n')),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.sampled_from('a"{}')), inner, max_size=3),
)


@given(values)
def test_mending_changes_nothing_that_can_be_read(value: Any) -> None:
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False)):
        assert mended(text.encode()) == text.encode()


@given(values, values)
def test_mending_leaves_what_stands_beside_a_deep_part(before: Any, after: Any) -> None:
    text = f'{{"before": {json.dumps(before)}, "deep": {DEEP}, "after": {json.dumps(after)}}}'
    found = msgspec.json.decode(mended(text.encode()))
    assert (found["before"], found["after"]) == (before, after)
    levels = 0
    while isinstance(found, dict):
        found, levels = found.get("deep", found.get("f:a")), levels + 1
    assert (found, levels) == (None, DEEPEST - 1)
