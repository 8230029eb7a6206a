"""Faults of the cluster are told as the reason on every surface. After the next step the row goes on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.controlplane.waiting import wait_for
from tests.faults import http_verbs
from tests.faults.http_proxy import KubeProxy, asks
from tests.faults.rules import Gate
from tests.rig.commands import command
from tests.rig.dispatching import Place, QuickDispatcher, TellingDispatcher
from tests.rig.janitoring import QuickJanitor
from tests.rig.reasons import all_surfaces
from tests.rig.steps import core_path, insert, reaches
from tests.rig.surfaces import Surfaces
from tests.rig.unmanaged import lose, say, unmanaged_node

ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles/dispatcher-jobs"


def through(place: Place, proxy: KubeProxy, **settings: object) -> TellingDispatcher:
    return TellingDispatcher(place, KUBECONFIG=proxy.kubeconfig(place.folder / "kubeconfig"), **settings)


@pytest.mark.slow
async def test_lost_node_is_told_until_it_is_back(place: Place) -> None:
    dispatcher = QuickDispatcher(place)
    async with unmanaged_node(place) as node, place.playing(), all_surfaces(place, dispatcher) as surfaces:
        pod = await lose(place, dispatcher, node)
        task_id = int(pod["metadata"]["labels"]["dispatcher.internal/task-id"])
        await surfaces.tell(task_id, "NodeLost", f"node {node} is not ready")
        await say(place, node, "True")
        path = core_path(place, "pods", pod["metadata"]["name"])
        await place.control_plane.admin("PATCH", f"{path}/status", {"status": {"phase": "Failed"}})
        await place.control_plane.admin("DELETE", path, {"gracePeriodSeconds": 0})
        place.template("there")
        await reaches(place, dispatcher, task_id, "processing", 60)


@pytest.mark.slow
async def test_missing_right_is_told_until_it_is_granted(place: Place) -> None:
    plane, path = place.control_plane, ROLES.format(place.namespace)
    role: Any = await plane.admin("GET", path)
    dispatcher = TellingDispatcher(place)
    async with place.playing(), all_surfaces(place, dispatcher) as surfaces:
        fewer = [{**rule, "verbs": [v for v in rule["verbs"] if v != "create"]} for rule in role["rules"]]
        await plane.admin("PATCH", path, {"rules": fewer})
        (task_id,) = await insert(place, 1)
        await surfaces.tell(task_id, "DispatcherNotReady", "Forbidden")
        await plane.admin("PATCH", path, {"rules": role["rules"]})
        await reaches(place, dispatcher, task_id, "succeeded", 60)


@pytest.mark.slow
async def test_throttling_api_server_is_told_until_it_answers(place: Place, kube_proxy: KubeProxy) -> None:
    rule = kube_proxy.add(http_verbs.status(503), asks("create", "jobs"))
    dispatcher = through(place, kube_proxy)
    async with place.playing(), all_surfaces(place, dispatcher) as surfaces:
        (task_id,) = await insert(place, 1)
        await surfaces.tell(task_id, "DispatcherNotReady", "ApiThrottled")
        rule.end()
        await reaches(place, dispatcher, task_id, "succeeded", 60)


@pytest.mark.slow
async def test_rows_behind_the_one_create_at_a_time_are_told(place: Place, kube_proxy: KubeProxy) -> None:
    failing = kube_proxy.add(http_verbs.status(503), asks("create", "jobs"))
    dispatcher = through(place, kube_proxy)
    async with place.playing(), all_surfaces(place, dispatcher) as surfaces:
        rows = await insert(place, 3)
        await wait_for(lambda: failing.hits >= 3, "creates failed", 20, check=dispatcher.check)
        gate = Gate()
        kube_proxy.add(http_verbs.hold(gate), asks("create", "jobs"))
        failing.end()
        await wait_for(lambda: gate.held, "one create is under way", 20, check=dispatcher.check)
        await surfaces.tell(rows[2], "NextCycle")
        gate.open()
        for task_id in rows:
            await reaches(place, dispatcher, task_id, "succeeded", 60)


REFUSED: dict[str, tuple[int, dict[str, Any]]] = {
    "NamespaceTerminating": (403, {"reason": "Forbidden", "details": {"causes": [{"reason": "NamespaceTerminating"}]}}),
    "NamespaceMissing": (404, {"reason": "NotFound"}),
}
"""The API server's answers, as `tests/contract/test_job_api.py` has them of a real one."""


@pytest.mark.slow
@pytest.mark.parametrize("detail", REFUSED)
async def test_namespace_that_goes_is_told_until_it_is_there(place: Place, kube_proxy: KubeProxy, detail: str) -> None:
    code, words = REFUSED[detail]
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": "no", **words}
    rule = kube_proxy.add(http_verbs.status(code, body), asks("create", "jobs"))
    dispatcher = through(place, kube_proxy)
    async with place.playing(), all_surfaces(place, dispatcher) as surfaces:
        (task_id,) = await insert(place, 1)
        await surfaces.tell(task_id, "DispatcherNotReady", detail)
        rule.end()
        await reaches(place, dispatcher, task_id, "succeeded", 60)


@pytest.mark.slow
async def test_pods_that_cannot_be_listed_are_told_until_they_are(place: Place, kube_proxy: KubeProxy) -> None:
    rule = kube_proxy.add(http_verbs.status(503), asks("list", "pods"))
    dispatcher, janitor = through(place, kube_proxy), QuickJanitor(place, PARK_SECONDS=3600)
    async with place.playing(), dispatcher, janitor:
        await wait_for(lambda: '"event":"leads"' in dispatcher.log, "it leads", 40, check=dispatcher.check)
        (task_id,) = await insert(place, 1)
        await Surfaces(place, dispatcher).tell(task_id, "DispatcherNotReady", "StaleCache")
        rule.end()
        await reaches(place, dispatcher, task_id, "succeeded", 60)


@pytest.mark.slow
async def test_missing_leader_is_told_by_http_and_command_until_one_leads(place: Place, kube_proxy: KubeProxy) -> None:
    """The other surfaces are the leader's, so they have nothing from it. SQL says so."""
    rules = [kube_proxy.add(http_verbs.status(503), asks(verb, "leases")) for verb in ("create", "update")]
    dispatcher, janitor = through(place, kube_proxy), QuickJanitor(place, PARK_SECONDS=3600)
    async with place.playing(), dispatcher, janitor:
        (task_id,) = await insert(place, 1)

        async def is_told() -> bool:
            _, said = await command(dispatcher, "explain", task_id)
            return "  DispatcherNotReady: " in said and "NoLeader" in said

        await wait_for(is_told, "the command tells NoLeader", 40, check=dispatcher.check)
        status, found = await dispatcher.explain(task_id)
        assert (status, found["reason"]) == (200, "DispatcherNotReady"), found
        team = await place.database.session("team_a")
        message = await team.fetchval("SELECT message FROM dispatch.task_explain WHERE id = $1", task_id)
        assert "the dispatcher has not reported" in message
        for rule in rules:
            rule.end()
        await reaches(place, dispatcher, task_id, "succeeded", 60)
