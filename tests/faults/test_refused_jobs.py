"""Quota, admission, and Jobs that never get a Pod: their rows are held with a reason and delay no other row."""

import itertools

import pytest

from tests.controlplane.api import Json
from tests.controlplane.waiting import wait_for
from tests.faults import http_verbs
from tests.faults.http_proxy import KubeProxy, asks
from tests.faults.rules import Gate, nth
from tests.rig.admission import NO_GPUS, denied, failing_webhook, silent_server
from tests.rig.deployed import rendered
from tests.rig.dispatching import Dispatcher, Place, QuickDispatcher
from tests.rig.steps import (
    behind,
    core_path,
    creates,
    fails_again,
    has_jobs,
    held,
    insert,
    limit,
    looks_again,
    made_twice,
    shows,
    succeeded,
    template_with,
)

REFUSED_PODS: dict[str, Json] = {
    "account": {"serviceAccountName": "nobody"},
    "class": {"priorityClassName": "nowhere"},
    "security": {"hostNetwork": True},
    "range": {"container": {"resources": {"requests": {"cpu": "9"}, "limits": {"cpu": "9"}}}},
    "quota": {"container": {"resources": {"requests": {"cpu": "8"}, "limits": {"cpu": "8"}}}},
}

NO_CLASS: Json = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "NotIn", "values": ["nowhere"]}]}
"""Pods without a PriorityClass, among others: the cluster may have a default class."""


@pytest.mark.slow
@pytest.mark.fault(14)
@pytest.mark.museum("403 quota taken as final")
async def test_own_job_is_found_behind_a_full_quota(place: Place, kube_proxy: KubeProxy) -> None:
    await limit(place, {"count/jobs.batch": "1"})
    silence = Gate()
    blind = kube_proxy.add(http_verbs.freeze(silence), asks("watch", "jobs"))
    lost = kube_proxy.add(http_verbs.drop_after, asks("create", "jobs"), nth(1))
    (task_id,) = await insert(place, 1)
    async with behind(place, kube_proxy) as dispatcher:
        await wait_for(lambda: creates(place, 403), "the create is sent again", 20, check=dispatcher.check)
        async with place.playing() as player:
            await succeeded(place, dispatcher, 1)
        await looks_again(dispatcher)
        assert await dispatcher.metric("dispatcher_job_creates_total", outcome="exists") == 1
        assert await dispatcher.metric("dispatcher_parked_tasks") == 0
        silence.open()
    assert (lost.hits, len(player.runs_of(task_id)), len(creates(place))) == (1, 1, 1)
    assert blind.hits


@pytest.mark.slow
@pytest.mark.fault(15)
@pytest.mark.museum("403 quota taken as final")
async def test_full_quota_is_the_hold_reason_until_there_is_room(place: Place) -> None:
    await limit(place, {"count/jobs.batch": "1"})
    async with place.playing(), Dispatcher(place) as dispatcher:
        await insert(place, 4, env={"PLAY": "hang"})
        await has_jobs(place, dispatcher, 1)
        await held(dispatcher, "QuotaExceeded", 3)
        await looks_again(dispatcher)
        assert len(creates(place, 403)) <= 3  # at most the creates of one burst
        more = {"spec": {"hard": {"count/jobs.batch": "9"}}}
        await place.control_plane.admin("PATCH", core_path(place, "resourcequotas", "limit"), more)
        await has_jobs(place, dispatcher, 4, 30)
        await held(dispatcher, "QuotaExceeded", 0)


@pytest.mark.slow
@pytest.mark.fault(17)
@pytest.mark.museum("422 retried forever")
async def test_rows_with_invalid_jobs_cost_few_requests_and_delay_no_other_row(place: Place) -> None:
    template_with(place, "torn", {"container": {"volumeMounts": [{"name": "nothing", "mountPath": "/x"}]}})
    async with place.playing(), Dispatcher(place) as dispatcher:
        await dispatcher.ready()
        bad = [await insert(place, 1, template="torn", priority=1) for _ in range(3)]
        await held(dispatcher, "Poison", len(bad))
        await insert(place, 20, template="torn", priority=1)
        await insert(place, 1, priority=900)
        await succeeded(place, dispatcher, 1)
        await held(dispatcher, "Poison", 23)
        tried = len(creates(place, 422))
        await looks_again(dispatcher, 10)
        assert tried == len(creates(place, 422)) <= 5
        await dispatcher.ready()


@pytest.mark.slow
@pytest.mark.fault(18)
@pytest.mark.parametrize(("reason", "status"), [("Forbidden", 403), ("Invalid", 422)])
async def test_denied_row_is_parked_with_the_policys_message(place: Place, reason: str, status: int) -> None:
    """A policy chooses its status. Its refusal is the operator's turn with each of them."""
    place.template("gpu")
    async with denied(place, "gpu", reason), place.playing(), Dispatcher(place) as dispatcher:
        rows = await insert(place, 2, template="gpu", priority=1)
        await insert(place, 1)
        await succeeded(place, dispatcher, 1)
        await held(dispatcher, "Poison", 2)
        await looks_again(dispatcher)
        assert NO_GPUS in dispatcher.log
        assert len(creates(place, status)) == 2
        _, told = await dispatcher.explain(rows[0])
        assert (told["whose_turn"], "a policy of the cluster refuses it" in told["message"]) == ("operator", True)


@pytest.mark.slow
@pytest.mark.fault(18)
@pytest.mark.parametrize("is_silent", [False, True], ids=["down", "silent"])
async def test_failing_webhook_delays_only_its_own_rows_and_loses_none(place: Place, *, is_silent: bool) -> None:
    place.template("hooked")
    async with place.playing(), Dispatcher(place) as dispatcher:
        await dispatcher.ready()
        async with silent_server() as silent, failing_webhook(place, "hooked", silent if is_silent else 1):
            await insert(place, 30, template="hooked", priority=1)
            await shows(dispatcher, "dispatcher_job_creates_total", outcome="unknown")
            await insert(place, 20, priority=900)
            await succeeded(place, dispatcher, 20)
        await succeeded(place, dispatcher, 50, 60)
    assert made_twice(place) == []


@pytest.mark.slow
@pytest.mark.fault(27)
async def test_launch_whose_pod_is_refused_ends_and_delays_no_other_row(place: Place) -> None:
    """A quota may have room later, so its launch waits. Nobody can judge beforehand whether this one applies."""
    plane = place.control_plane
    strict = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}
    await plane.admin("PATCH", f"/api/v1/namespaces/{place.namespace}", strict)
    most = {"limits": [{"type": "Container", "max": {"cpu": "8"}}]}
    await plane.admin("POST", core_path(place, "limitranges"), {"metadata": {"name": "range"}, "spec": most})
    await limit(place, {"requests.cpu": "7"}, NO_CLASS)
    for name, pod in REFUSED_PODS.items():
        template_with(place, name, pod)
    refused = len(REFUSED_PODS) - 1
    dispatcher = QuickDispatcher(place, MAX_LAUNCHES=1)
    async with place.playing() as player, dispatcher:
        for name in REFUSED_PODS:
            await insert(place, 1, template=name)
        await has_jobs(place, dispatcher, len(REFUSED_PODS))
        (good,) = await insert(place, 1, priority=900)
        await succeeded(place, dispatcher, 1)
        await held(dispatcher, "LaunchesExhausted", refused, 60)
        assert await dispatcher.metric("dispatcher_refused_pods", cause="quota") == 1
        await held(dispatcher, "Launched", 1)
        assert [run.task_id for run in player.runs] == [good]
    for words in ("violates PodSecurity", "error looking up service account", "maximum cpu usage per Container is 8"):
        assert words in dispatcher.log
    jobs: list[Json] = await place.jobs()
    ends = [c["reason"] for job in jobs for c in job["status"].get("conditions", ()) if c["type"] == "Failed"]
    assert ends == ["DeadlineExceeded"] * refused


@pytest.mark.slow
@pytest.mark.fault(16)
async def test_terminating_namespace_gets_only_a_few_creates(place: Place) -> None:
    plane = place.control_plane
    dying = await plane.create_namespace()
    await plane.apply(rendered("one-namespace", only="rbac"), namespace=dying)
    rights = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{dying}"
    ours = {"subjects": [{"kind": "ServiceAccount", "name": "dispatcher", "namespace": place.namespace}]}
    held_there = {"metadata": {"finalizers": ["tests.example/held"]}}
    roles = ("dispatcher", "dispatcher-jobs")
    for role in roles:
        await plane.admin("PATCH", f"{rights}/roles/{role}", held_there)
        await plane.admin("PATCH", f"{rights}/rolebindings/{role}", held_there | ours)
    cluster_wide = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/dispatcher-nodes.dispatcher"
    await plane.admin("PATCH", cluster_wide, ours)
    async with Dispatcher(place, NAMESPACE=dying) as dispatcher:
        await dispatcher.ready()
        await plane.delete_namespace(dying)
        await dispatcher.unready("being terminated")
        await insert(place, 5)
        await fails_again(dispatcher, "lease", 5)
        tried = plane.audit(user_prefix=f"system:serviceaccount:{place.namespace}:", verb="create", resource="jobs")
        assert len([event for event in tried if event.object_ref.namespace == dying]) <= 5
        assert (await dispatcher.get("/healthz"))[0] == 200
        for resource, role in itertools.product(("roles", "rolebindings"), roles):
            await plane.admin("PATCH", f"{rights}/{resource}/{role}", {"metadata": {"finalizers": None}})
