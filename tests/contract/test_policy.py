"""The admission policy of the chart at the real API server: the limits of Jobs made by our accounts."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from dispatcher.jobs.refusals import CreateOutcome, read_create
from dispatcher.kube.client import KubeClient
from dispatcher.kube.credentials import from_kubeconfig
from dispatcher.kube.job_api import JobApi
from tests.contract.installed import Site, guarded
from tests.contract.policy_cases import (
    BEYOND_BUILDER,
    CACHES,
    CONTAINER_ATTACKS,
    LEGAL_CONTAINERS,
    LEGAL_PODS,
    LISTS,
    OF_BUILDER,
    OTHER_SECRET,
    POD_ATTACKS,
    STOLEN,
    volume,
)
from tests.controlplane.api import Json, KubeFault
from tests.controlplane.cluster import ControlPlane

DRY_RUN = {"dryRun": "All"}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(control_plane: ControlPlane) -> AsyncIterator[Site]:
    async with guarded(control_plane, settings={"CACHE_ROOT": CACHES}, policy=LISTS) as made:
        yield made


async def refusal(site: Site, account: str, job: Json, **params: str) -> str:
    with pytest.raises(KubeFault) as caught:
        await site.sends(account, job, **params)
    assert caught.value.status == 403, caught.value
    return str(caught.value)


@pytest.mark.parametrize("field", ["containers", "initContainers"])
@pytest.mark.parametrize("attack", CONTAINER_ATTACKS)
async def test_container_that_names_unlisted_things_is_refused(site: Site, field: str, attack: str) -> None:
    fields, words = CONTAINER_ATTACKS[attack]
    fields = {name: value for name, value in fields.items() if field == "initContainers" or value != "Always"}
    job = site.job()
    pod = job["spec"]["template"]["spec"]
    pod[field] = [*pod.get(field, ()), {"name": "more", "image": "x:1", **fields}]
    assert words in await refusal(site, site.dispatcher, job)


@pytest.mark.parametrize("attack", POD_ATTACKS)
async def test_pod_that_names_unlisted_things_is_refused(site: Site, attack: str) -> None:
    fields, words = POD_ATTACKS[attack]
    job = site.job()
    job["spec"]["template"]["spec"] |= fields
    assert words in await refusal(site, site.dispatcher, job)


def of_template(site: Site, name: str, fields: Json) -> Json:
    job = site.job()
    job["metadata"]["labels"]["dispatcher.internal/template"] = name
    pod = job["spec"]["template"]["spec"]
    pod |= {key: value for key, value in fields.items() if key != "container"}
    pod["containers"].append({"name": "more", "image": "x:1", **fields.get("container", {})})
    return job


@pytest.mark.parametrize("legal", OF_BUILDER)
async def test_template_may_name_what_is_listed_for_it_alone(site: Site, legal: str) -> None:
    await site.sends(site.dispatcher, of_template(site, "builder", OF_BUILDER[legal]), **DRY_RUN)
    for other in ("reader", "builder2", ""):
        if legal != "what all may":
            assert "values: policy" in await refusal(site, site.dispatcher, of_template(site, other, OF_BUILDER[legal]))


@pytest.mark.parametrize("attack", BEYOND_BUILDER)
async def test_template_may_name_no_more_than_what_is_listed_for_it(site: Site, attack: str) -> None:
    job = of_template(site, "builder", BEYOND_BUILDER[attack])
    assert "take" in await refusal(site, site.dispatcher, job)


@pytest.mark.parametrize("account", ["dispatcher", "janitor"])
async def test_dry_run_is_judged_by_the_same_policy(site: Site, account: str) -> None:
    job = site.job()
    job["spec"]["template"]["spec"] |= volume(secret={"secretName": STOLEN})
    assert OTHER_SECRET in await refusal(site, getattr(site, account), job, **DRY_RUN)


@pytest.mark.parametrize("legal", LEGAL_CONTAINERS)
async def test_container_may_name_listed_things(site: Site, legal: str) -> None:
    job = site.job()
    job["spec"]["template"]["spec"]["containers"].append({"name": "more", "image": "x:1", **LEGAL_CONTAINERS[legal]})
    await site.sends(site.dispatcher, job, **DRY_RUN)


async def test_job_with_two_thousand_references_is_judged_within_the_budget(site: Site) -> None:
    """The API server limits the work for a policy. Beyond the limit it refuses the Job."""
    job = site.job()
    named = [{"name": f"N{n}", "valueFrom": {"secretKeyRef": {"name": "team-a", "key": "url"}}} for n in range(100)]
    job["spec"]["template"]["spec"]["containers"] += [
        {"name": f"c{n}", "image": "x:1", "env": named} for n in range(20)
    ]
    await site.sends(site.dispatcher, job, **DRY_RUN)
    named[-1]["valueFrom"] = {"secretKeyRef": {"name": STOLEN, "key": "url"}}
    assert OTHER_SECRET in await refusal(site, site.dispatcher, job)


@pytest.mark.parametrize("legal", LEGAL_PODS)
async def test_pod_may_name_listed_things(site: Site, legal: str) -> None:
    job = site.job()
    job["spec"]["template"]["spec"] |= LEGAL_PODS[legal]
    await site.sends(site.dispatcher, job, **DRY_RUN)


@pytest.mark.parametrize("key", [None, "maps"])
async def test_job_of_the_built_in_template_is_accepted(site: Site, key: str | None) -> None:
    job = site.job(cache_key=key)
    volumes = job["spec"]["template"]["spec"].get("volumes", ())
    assert [one["hostPath"]["path"].startswith(f"{CACHES}/") for one in volumes] == ([True] if key else [])
    made = await site.sends(site.dispatcher, job)
    await (await site.account(site.dispatcher)).request(
        "DELETE", site.path(name=made["metadata"]["name"]), params={"propagationPolicy": "Background"}
    )


async def test_janitor_makes_jobs_only_as_a_dry_run(site: Site) -> None:
    assert "as a dry run only" in await refusal(site, site.janitor, site.job())
    made = await site.sends(site.janitor, site.job(), **DRY_RUN)
    assert made["metadata"]["uid"]


@pytest.mark.parametrize("label", ["app.kubernetes.io/managed-by", "dispatcher.internal/installation"])
@pytest.mark.parametrize("where", ["job", "pod"])
@pytest.mark.parametrize("value", [None, "another"])
async def test_job_without_our_labels_is_refused(site: Site, where: str, label: str, value: str | None) -> None:
    job = site.job()
    labels = (job if where == "job" else job["spec"]["template"])["metadata"]["labels"]
    del labels[label]
    labels |= {label: value} if value else {}
    assert "have the labels app.kubernetes.io/managed-by=dispatcher" in await refusal(site, site.dispatcher, job)


async def test_job_outside_its_namespace_is_refused(site: Site, namespace: str) -> None:
    for place in (site.namespace, namespace):
        with pytest.raises(KubeFault, match="cannot create resource") as caught:
            await site.sends(site.dispatcher, site.job() | {"metadata": {"name": "x"}}, place)
        assert caught.value.status == 403
    await site.grant(namespace, site.dispatcher, "create")  # a well-meant right too many
    job = site.job()
    job["metadata"]["namespace"] = namespace

    async def is_refused_by_the_policy() -> bool:
        with pytest.raises(KubeFault) as caught:
            await site.sends(site.dispatcher, job, namespace, **DRY_RUN)
        return f"Jobs of ours are made in namespace {site.jobs} alone" in str(caught.value)

    await site.plane.wait_for(is_refused_by_the_policy, "the policy refuses what RBAC grants")


async def test_jobs_of_other_accounts_are_outside_the_policy(site: Site, namespace: str) -> None:
    for place in (site.jobs, namespace):
        job = site.job()
        del job["metadata"]["labels"], job["metadata"]["namespace"]
        job["spec"]["template"]["spec"] |= {"hostNetwork": True, **volume(secret={"secretName": STOLEN})}
        await site.plane.admin("POST", site.path(place), job, params=DRY_RUN)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def changed(site: Site) -> AsyncIterator[str]:
    """A Job that our accounts may patch. Nothing in `deploy/` grants that yet; the policy limits it already."""
    for account in (site.dispatcher, site.janitor):
        await site.grant(site.jobs, account, "patch")
    job = site.job()
    job["metadata"] |= {"name": "changed", "annotations": {"note": "a"}}
    job["spec"] |= {"suspend": True, "ttlSecondsAfterFinished": 9999}
    await site.plane.admin("POST", site.path(), job)
    path, nothing = site.path(name="changed"), Json(metadata={})

    async def is_granted() -> bool:
        try:
            for account in (site.dispatcher, site.janitor):
                await (await site.account(account)).request("PATCH", path, nothing, params=DRY_RUN)
        except KubeFault as fault:
            if "cannot patch resource" not in str(fault):
                raise
            return False
        return True

    await site.plane.wait_for(is_granted, "the rights are known")
    yield path
    await site.plane.admin("DELETE", site.path(name="changed"), params={"propagationPolicy": "Background"})


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"activeDeadlineSeconds": 77}},
        {"metadata": {"annotations": {"dispatcher.internal/unplaced": "true"}}},
        {"metadata": {"annotations": {"dispatcher.internal/ended-by": "others"}}},
        {"metadata": {"annotations": {"dispatcher.internal/unplaced": None}}, "spec": {"activeDeadlineSeconds": 78}},
    ],
)
async def test_deadline_and_the_annotations_of_an_end_may_be_changed(site: Site, changed: str, change: Json) -> None:
    await (await site.account(site.dispatcher)).request("PATCH", changed, change)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"spec": {"suspend": False}}, "of a Job's spec"),
        ({"spec": {"parallelism": 2}}, "of a Job's spec"),
        ({"spec": {"ttlSecondsAfterFinished": 1}}, "of a Job's spec"),
        ({"spec": {"ttlSecondsAfterFinished": None}}, "of a Job's spec"),
        ({"spec": {"template": {"metadata": {"labels": {"x": "y"}}}}}, "of a Job's spec"),
        ({"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}}, "of a Job's spec"),
        ({"metadata": {"labels": {"x": "y"}}}, "of a Job's metadata"),
        ({"metadata": {"labels": {"dispatcher.internal/installation": None}}}, "have the labels"),
        ({"metadata": {"annotations": {"note": "b"}}}, "of a Job's metadata"),
        ({"metadata": {"annotations": {"note": None}}}, "of a Job's metadata"),
        ({"metadata": {"annotations": {"other": ""}}}, "of a Job's metadata"),
        ({"metadata": {"finalizers": ["a.b/c"]}}, "of a Job's metadata"),
        (
            {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]}},
            "of a Job's metadata",
        ),
    ],
)
async def test_other_changes_of_a_job_are_refused(site: Site, changed: str, change: Json, words: str) -> None:
    with pytest.raises(KubeFault, match=words) as caught:
        await (await site.account(site.dispatcher)).request("PATCH", changed, change)
    assert caught.value.status == 403


async def test_janitor_changes_nothing(site: Site, changed: str) -> None:
    with pytest.raises(KubeFault, match="as a dry run only"):
        await (await site.account(site.janitor)).request("PATCH", changed, {"spec": {"activeDeadlineSeconds": 79}})


async def test_refusal_counts_against_the_row_alone(site: Site, tmp_path: Any) -> None:
    """The refusal is not read as a missing right, which would stop every launch."""
    token = await site.plane.service_account_token(site.namespace, site.dispatcher)
    config = site.plane.kubeconfig(tmp_path / "kubeconfig", token=token, namespace=site.jobs)
    client = KubeClient(await from_kubeconfig(str(config), None))
    api = JobApi(client, site.jobs, "dispatcher")
    job = site.job()
    job["spec"]["template"]["spec"] |= volume(secret={"secretName": STOLEN})
    for answer in (await api.create(job), await api.try_create(job)):
        assert read_create(answer) is CreateOutcome.DENIED, answer
        assert OTHER_SECRET in answer.message
    await client.close()


async def test_api_server_finds_no_fault_with_the_policy(site: Site) -> None:
    kind = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"

    async def checked() -> Json:
        status: Json = (await site.plane.admin("GET", f"{kind}/{site.policy}")).get("status", {})
        return status if "observedGeneration" in status else {}

    assert (await site.plane.wait_for(checked, "its types are checked", 30)).get("typeChecking", {}) == {}


@pytest.mark.parametrize("account", ["dispatcher", "janitor"])
@pytest.mark.parametrize("verb", ["get", "list"])
async def test_our_accounts_read_no_secret(site: Site, account: str, verb: str) -> None:
    api = await site.account(getattr(site, account))
    for namespace in (site.namespace, site.jobs):
        name = f"/{STOLEN}" if verb == "get" else ""
        with pytest.raises(KubeFault, match=f"cannot {verb} resource") as caught:
            await api.request("GET", f"/api/v1/namespaces/{namespace}/secrets{name}")
        assert caught.value.status == 403


async def test_our_accounts_cannot_change_the_policy(site: Site) -> None:
    group = "/apis/admissionregistration.k8s.io/v1"
    for account in (site.dispatcher, site.janitor):
        api = await site.account(account)
        for kind in ("validatingadmissionpolicies", "validatingadmissionpolicybindings"):
            with pytest.raises(KubeFault, match="cannot patch resource"):
                await api.request("PATCH", f"{group}/{kind}/{site.policy}", {"spec": {"validations": []}})
            with pytest.raises(KubeFault, match="cannot delete resource"):
                await api.request("DELETE", f"{group}/{kind}/{site.policy}")


@pytest.mark.parametrize("where", ["namespace", "jobs"])
async def test_dispatcher_cannot_touch_a_foreign_lease(site: Site, where: str) -> None:
    collection = f"/apis/coordination.k8s.io/v1/namespaces/{getattr(site, where)}/leases"
    lease = {"metadata": {"name": "another-leader"}, "spec": {"holderIdentity": "another", "leaseDurationSeconds": 15}}
    made = await site.plane.admin("POST", collection, lease)
    api = await site.account(site.dispatcher)
    for method, verb in (("GET", "get"), ("PUT", "update"), ("DELETE", "delete")):
        with pytest.raises(KubeFault, match=f"cannot {verb} resource") as caught:
            await api.request(method, f"{collection}/another-leader", made if method == "PUT" else None)
        assert caught.value.status == 403
    await site.plane.admin("DELETE", f"{collection}/another-leader")
