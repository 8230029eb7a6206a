"""What kube-scheduler asks an extender, when it asks again, and what it makes of answers, points and faults."""

import re
from contextlib import suppress
from functools import partial
from itertools import count, cycle, islice

import pytest
from aiohttp import web

from tests.controlplane.api import Json
from tests.controlplane.waiting import wait_for
from tests.scheduling.kube_scheduler import KubeScheduler, entry
from tests.scheduling.nodes_and_pods import NodeGroup
from tests.scheduling.scripted_extender import Reply, ScriptedExtender, points, refuse
from tests.scheduling.shared_nodes import ScriptedNodes

pytest_plugins = ["tests.scheduling.fixtures"]


async def test_unresolvable_refusal_is_counted_by_its_phrase_and_preempts_nobody(
    node_group: NodeGroup, extender: ScriptedExtender
) -> None:
    message = await refused(node_group, extender, refuse(into="FailedAndUnresolvableNodes"))
    assert reasons(message) == ["2 held for another"]
    assert "victim" not in message
    assert extender.of("preempt") == []


@pytest.mark.parametrize("verb", ["preempt", None], ids=["with preempt", "without"])
async def test_refusal_in_failed_nodes_starts_a_useless_preemption(
    node_group: NodeGroup, extender: ScriptedExtender, verb: str | None
) -> None:
    message = await refused(node_group, extender, refuse(into="FailedNodes"), preemptVerb=verb)
    assert reasons(message) == ["2 held for another"]
    assert "expected at least one victim pod on node" in message


async def refused(node_group: NodeGroup, extender: ScriptedExtender, reply: Reply, **changes: object) -> str:
    """The message of a refused Pod of high priority, while lower Pods run on nodes with room."""
    for node in await node_group.nodes(2):
        await node_group.occupy(node)
    extender.filter = reply
    high = await node_group.priority("high", 100)
    pod = await node_group.pod(node_group.scheduler(entry(extender.url, **changes)), priorityClassName=high)
    message = await node_group.held(pod, "Unschedulable")
    assert len(await node_group.pods()) == 3
    return message


def reasons(message: str) -> list[str]:
    """Reasons of the extender. Those of kube-scheduler begin with `node(s)`, and are about nodes of other tests."""
    told = re.match(r"0/\d+ nodes are available:(.*?)(?:no new claims to deallocate, )?preemption: ", message)
    assert told, message
    return [one for one in told[1].strip(" .").split(", ") if one and not re.match(r"\d+ node\(s\) ", one)]


async def test_pod_without_points_is_bound_with_two_calls_over_one_connection(shared_nodes: ScriptedNodes) -> None:
    pods = [await shared_nodes.pod() for _ in range(5)]
    assert set(await shared_nodes.node_group.bound(*pods)) <= set(shared_nodes.nodes)
    calls = shared_nodes.extender.calls
    assert [call.verb for call in calls] == ["filter", "prioritize"] * 5
    assert [call.pod for call in calls[::2]] == [call.pod for call in calls[1::2]]
    assert sorted(call.pod for call in calls[::2]) == sorted(pods)
    assert len({call.peer for call in calls}) == 1


async def test_single_node_needs_no_points(node_group: NodeGroup, extender: ScriptedExtender) -> None:
    await node_group.nodes(1)
    await node_group.bound(await node_group.pod(node_group.scheduler(entry(extender.url))))
    assert [call.verb for call in extender.calls] == ["filter"]


async def test_one_point_of_weight_three_is_thirty(node_group: NodeGroup, extender: ScriptedExtender) -> None:
    first, second = await node_group.nodes(2)
    extender.prioritize = points(**{first: 1})
    scheduler = node_group.scheduler(entry(extender.url, weight=3))
    pod = await node_group.pod(scheduler)
    assert await node_group.bound(pod) == [first]
    added = [scheduler.extender_score(node_group.key(pod), node) for node in (first, second)]
    assert added == [30, 0]


@pytest.mark.parametrize(("said", "wins"), [(3, "idle"), (5, "busy")])
async def test_five_points_outweigh_a_cpu_three_quarters_full_and_three_do_not(
    node_group: NodeGroup, extender: ScriptedExtender, said: int, wins: str
) -> None:
    busy, idle = await node_group.nodes(2)
    await node_group.occupy(busy, cpu="6")
    extender.prioritize = points(**{busy: said})
    scheduler = node_group.scheduler(entry(extender.url))
    pod = await node_group.pod(scheduler)
    assert await node_group.bound(pod) == [{"idle": idle, "busy": busy}[wins]]
    plugins = [sum(scheduler.plugin_scores(node_group.key(pod), node).values()) for node in (idle, busy)]
    assert 30 < plugins[0] - plugins[1] < 40


async def test_points_given_twice_add_up(shared_nodes: ScriptedNodes) -> None:
    first, second = shared_nodes.nodes
    shared_nodes.extender.prioritize = lambda asked: [{"Host": first, "Score": 2}] * 2 + [{"Host": second, "Score": 3}]
    pod, node = await shared_nodes.bound()
    assert node == first
    assert shared_nodes.added(pod) == [40, 30]


async def test_node_left_out_of_the_answer_loses_ties_to_a_node_with_zero(shared_nodes: ScriptedNodes) -> None:
    """Only nodes with an answer take part in the random choice that breaks ties."""
    for node in shared_nodes.nodes:
        shared_nodes.extender.prioritize = points(**{node: 0})
        pods = [await shared_nodes.pod(cpu=None, memory=None) for _ in range(6)]
        assert await shared_nodes.node_group.bound(*pods) == [node] * 6
    assert len(set(shared_nodes.scheduler.final_scores(shared_nodes.node_group.key(pods[-1])).values())) == 1, "a tie"


@pytest.mark.parametrize("verb", ["filter", "prioritize"])
async def test_scheduler_sends_the_pod_and_the_names_of_fitting_nodes(shared_nodes: ScriptedNodes, verb: str) -> None:
    pod, _ = await shared_nodes.bound(notes={"cache-key": "a"})
    (call,) = shared_nodes.extender.of(verb, pod)
    assert set(call.body) == {"Pod", "Nodes", "NodeNames"}
    assert (call.body["Nodes"], sorted(call.names)) == (None, sorted(shared_nodes.nodes))
    whole = await shared_nodes.node_group.read(pod)
    assert call.body["Pod"]["metadata"]["uid"] == whole["metadata"]["uid"]
    assert call.body["Pod"]["metadata"]["annotations"] == {"dispatcher.internal/cache-key": "a"}
    assert "managedFields" not in call.body["Pod"]["metadata"]
    assert call.body["Pod"]["spec"]["containers"] == whole["spec"]["containers"]


async def test_scheduler_sends_its_user_agent_and_accepts_gzip(
    node_group: NodeGroup, extender: ScriptedExtender
) -> None:
    await node_group.nodes(1)
    await node_group.bound(await node_group.pod(node_group.scheduler(entry(extender.url + "/"))))
    (call,) = extender.of("filter")
    sent = {name: text for name, text in call.headers.items() if name not in {"Host", "Content-Length"}}
    assert sent == {"User-Agent": "Go-http-client/1.1", "Content-Type": "application/json", "Accept-Encoding": "gzip"}


async def test_scheduler_without_node_cache_sends_whole_nodes(
    node_group: NodeGroup, extender: ScriptedExtender
) -> None:
    nodes = await node_group.nodes(2)
    await node_group.bound(await node_group.pod(node_group.scheduler(entry(extender.url, nodeCacheCapable=False))))
    for call in extender.calls:
        assert call.body["NodeNames"] is None
        assert sorted(call.names) == sorted(nodes)
        assert {node["status"]["allocatable"]["cpu"] for node in call.body["Nodes"]["items"]} == {"8"}
    assert [call.verb for call in extender.calls] == ["filter", "prioritize"]
    assert "managedFields" in extender.calls[0].body["Nodes"]["items"][0]["metadata"], (
        "managed fields of Nodes come along"
    )


OWN = "UnschedulablePodUpdate"
PUT_BACK = "ScheduleAttemptFailure"


async def test_only_a_changing_refusal_phrase_makes_endless_calls(
    node_group: NodeGroup, extender: ScriptedExtender
) -> None:
    """Each new message is a new condition, and a new condition wakes the Pod: an endless loop of calls and writes.

    The Pod that is refused with the same words again is woken by its first condition alone.
    Events of nodes, for example of another test, may wake it too.
    """
    _, (same, changing), scheduler = await refused_everywhere(node_group, extender, 2)
    seconds = count()

    def refuse_for(asked: Json) -> Json:
        phrase = "held for another" if asked["Pod"]["metadata"]["name"] == same else f"{next(seconds)} s"
        return {"NodeNames": [], "FailedAndUnresolvableNodes": dict.fromkeys(asked["NodeNames"], phrase)}

    extender.filter = refuse_for
    calls = len(extender.of("filter", changing))
    wakings = {pod: scheduler.retries_after(node_group.key(pod), OWN) for pod in (same, changing)}

    def woken(pod: str) -> int:
        return scheduler.retries_after(node_group.key(pod), OWN) - wakings[pod]

    await node_group.annotate_pod_by_status(changing, woken="1")
    await wait_for(lambda: len(extender.of("filter", changing)) >= calls + 20, "twenty calls")
    await wait_for(lambda: woken(changing) >= 10, "most of them after a condition of its own")
    assert woken(same) <= 2


@pytest.mark.slow
async def test_annotation_of_any_node_wakes_each_refused_pod(node_group: NodeGroup, extender: ScriptedExtender) -> None:
    (node, *_), pods, _ = await refused_everywhere(node_group, extender, 3)
    before = {pod: len(extender.of("filter", pod)) for pod in pods}
    await node_group.annotate_node(node, load="0.7")
    await wait_for(lambda: all(len(extender.of("filter", pod)) > before[pod] for pod in pods), "a call for each")


async def test_annotation_of_a_refused_pod_wakes_that_pod_at_once(
    node_group: NodeGroup, extender: ScriptedExtender
) -> None:
    """A Pod that an event of a node has just woken, for example of another test, cannot be woken by its note.

    So Pods are annotated in turn until one is. The extender refuses all of them throughout.
    """
    _, pods, scheduler = await refused_everywhere(node_group, extender, 3)
    for number, pod in enumerate(islice(cycle(pods), 21)):
        before = scheduler.retries_after(node_group.key(pod), OWN)
        await node_group.annotate_pod_by_status(pod, woken=str(number))
        with suppress(TimeoutError):
            await wait_for(partial(was_woken, scheduler, node_group.key(pod), before), "tried by the note", 3)
            return
    pytest.fail(f"none of {len(pods)} Pods was tried by its note")


def was_woken(scheduler: KubeScheduler, key: str, before: int) -> bool:
    """Whether kube-scheduler has tried the Pod again because of a change of the Pod."""
    return scheduler.retries_after(key, OWN) > before


async def refused_everywhere(
    node_group: NodeGroup, extender: ScriptedExtender, number: int
) -> tuple[list[str], list[str], KubeScheduler]:
    """Pods that the extender refuses on every node, after kube-scheduler has stopped asking.

    The condition of the first refusal wakes a Pod once. The event is lost if the Pod is just tried again because of an
    event of a node, for example of another test. Then a note on the Pod wakes it.
    """
    nodes = await node_group.nodes(2)
    extender.filter = refuse(into="FailedAndUnresolvableNodes")
    scheduler = node_group.scheduler(entry(extender.url))
    pods = [await node_group.pod(scheduler) for _ in range(number)]
    for pod in pods:
        await node_group.held(pod, "Unschedulable", "held for another")
    keys = [node_group.key(pod) for pod in pods]

    def asleep() -> list[str]:
        return [pod for pod, key in zip(pods, keys, strict=True) if scheduler.retries_after(key, OWN) < 1]

    with suppress(TimeoutError):
        await wait_for(lambda: not asleep(), "woken by their conditions", 3)
    for pod in asleep():
        await node_group.annotate_pod_by_status(pod, nudged="1")
    await wait_for(lambda: not asleep(), "woken by their conditions or by a note")
    await wait_for(lambda: all(scheduler.retries_after(key, PUT_BACK) >= 2 for key in keys), "refused twice, put back")
    return nodes, pods, scheduler


async def test_victims_are_lost_without_preempt_for_a_pod_that_no_node_takes(
    node_group: NodeGroup, extender: ScriptedExtender
) -> None:
    victims = await full(node_group, 3)
    extender.filter = refuse(into="FailedAndUnresolvableNodes")
    pod = await high(node_group, extender, preemptVerb=None)
    await node_group.gone(*victims)
    await node_group.held(pod, "Unschedulable", "held for another")
    assert "nodeName" not in (await node_group.read(pod))["spec"]


async def test_preempt_saves_the_victims_of_a_pod_that_no_node_takes(
    node_group: NodeGroup, extender: ScriptedExtender
) -> None:
    victims = await full(node_group, 3)
    extender.filter = refuse(into="FailedAndUnresolvableNodes")
    extender.preempt = lambda asked: {"NodeNameToMetaVictims": {}}
    pod = await high(node_group, extender)
    await node_group.held(pod, "Unschedulable", "preemption: ")
    assert set(await node_group.pods()) == {pod, *victims}
    assert extender.of("preempt")


async def test_fault_of_preempt_saves_the_victims(node_group: NodeGroup, extender: ScriptedExtender) -> None:
    victims = await full(node_group, 2)
    extender.preempt = lambda asked: b"{"
    pod = await high(node_group, extender)
    await node_group.held(pod, "Unschedulable", "unexpected EOF")
    assert set(await node_group.pods()) == {pod, *victims}


async def test_node_that_preempt_drops_keeps_its_pods(node_group: NodeGroup, extender: ScriptedExtender) -> None:
    kept, taken = await node_group.nodes(2, cpu="1")
    survivor, victim = [await node_group.occupy(node, cpu="900m") for node in (kept, taken)]

    def drop(asked: Json) -> Json:
        indexed_rows = dict(asked["NodeNameToMetaVictims"])
        indexed_rows.pop(kept, None)
        return {"NodeNameToMetaVictims": indexed_rows}

    extender.preempt = drop
    pod = await high(node_group, extender)
    assert await node_group.bound(pod) == [taken]
    await node_group.gone(victim)
    assert survivor in await node_group.pods()
    assert [call.names for call in extender.of("filter", pod)] == [[taken]], "the nominated node"
    assert extender.of("prioritize", pod) == []


async def test_preempt_is_asked_with_the_uids_of_the_victims(node_group: NodeGroup, extender: ScriptedExtender) -> None:
    (name,) = await full(node_group, 1)
    victim = await node_group.read(name)
    await node_group.bound(await high(node_group, extender))
    asked = extender.of("preempt")[0].body
    assert asked["NodeNameToVictims"] is None
    assert asked["NodeNameToMetaVictims"] == {
        victim["spec"]["nodeName"]: {"Pods": [{"UID": victim["metadata"]["uid"]}], "NumPDBViolations": 0}
    }


async def full(node_group: NodeGroup, number: int) -> list[str]:
    """Low-priority Pods that fill `number` nodes."""
    return [await node_group.occupy(node, cpu="900m") for node in await node_group.nodes(number, cpu="1")]


async def high(node_group: NodeGroup, extender: ScriptedExtender, **changes: object) -> str:
    """A Pod of high priority, for which others may be evicted."""
    scheduler = node_group.scheduler(entry(extender.url, **changes))
    return await node_group.pod(scheduler, cpu="500m", priorityClassName=await node_group.priority("high", 100))


UNSCORED = "Failed to run extender's priority function. No score given by this extender."
HALF = b'{"NodeNames": ["'


def status(code: int) -> Reply:
    return lambda asked: web.Response(status=code, text="no")


FAULTS = [
    pytest.param({"NodeNames": ["no-such-node"]}, "which is not found in the input node list", id="unknown node"),
    pytest.param({"NodeNames": None, "Error": "no store yet"}, "no store yet", id="error"),
    pytest.param(HALF, "unexpected EOF", id="cut"),
    pytest.param(b"<html>", "invalid character '<'", id="not json"),
    pytest.param({"NodeNames": 5}, "cannot unmarshal number", id="another type"),
]


@pytest.mark.parametrize(("said", "words"), FAULTS)
async def test_invalid_answer_is_a_fault_of_the_pod_in_raw_words(
    shared_nodes: ScriptedNodes, said: Json | bytes, words: str
) -> None:
    shared_nodes.extender.filter = lambda asked: said
    await shared_nodes.node_group.held(await shared_nodes.pod(), "SchedulerError", words)


@pytest.mark.parametrize("code", [400, 404, 413, 500, 503])
async def test_status_other_than_200_is_a_fault(shared_nodes: ScriptedNodes, code: int) -> None:
    shared_nodes.extender.filter = status(code)
    words = f"failed filter with extender at URL {shared_nodes.extender.url}/filter, code {code}"
    await shared_nodes.node_group.held(await shared_nodes.pod(), "SchedulerError", words)


@pytest.mark.fault(60)
async def test_hanging_extender_costs_its_timeout_and_is_a_fault(
    node_group: NodeGroup, extender: ScriptedExtender
) -> None:
    await node_group.nodes(2)
    extender.filter = extender.hang
    pod = await node_group.pod(node_group.scheduler(entry(extender.url, httpTimeout="200ms")))
    await node_group.held(pod, "SchedulerError", "context deadline exceeded")


FAILING = {"a status": status(500), "half": lambda asked: HALF, "nothing": lambda asked: b""}


@pytest.mark.parametrize("reply", FAILING.values(), ids=FAILING)
async def test_fault_of_prioritize_is_only_logged(shared_nodes: ScriptedNodes, reply: Reply) -> None:
    shared_nodes.extender.prioritize = reply
    pod, node = await shared_nodes.bound()
    assert node in shared_nodes.nodes
    assert len(shared_nodes.scheduler.said(UNSCORED, pod=shared_nodes.node_group.key(pod))) == 1, "at level 5"


async def test_connection_closed_during_a_call_fails_the_pod(shared_nodes: ScriptedNodes) -> None:
    """As when the server closes an idle connection just as a Pod comes: kube-scheduler does not repeat the call."""
    before, _ = await shared_nodes.bound()
    shared_nodes.extender.filter = shared_nodes.extender.hang_up
    pod = await shared_nodes.pod()
    await shared_nodes.node_group.held(pod, "SchedulerError", "EOF")
    peers = [shared_nodes.extender.of("filter", asked)[0].peer for asked in (before, pod)]
    assert peers[0] == peers[1], "over the connection that was idle"
