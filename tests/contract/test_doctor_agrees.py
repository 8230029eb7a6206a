"""The doctor judges as the servers do: Pod Security as the API server, verbs as the manifests grant them."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from dispatcher.doctor.pod_rules import (
    BASELINE,
    PRIVILEGED,
    RESTRICTED,
    defaults_of,
    quota_refusal,
    range_refusals,
    violations,
)
from dispatcher.kube.capacity import read_quota
from dispatcher.kube.pods import needs_of_manifest
from dispatcher.model.rights import CACHE_KEEPER, EXTENDER, JANITOR, RUN, InstallationSite, account_of, verbs_of
from tests.contract.in_force import pod_security_in_force, quota_in_force
from tests.controlplane.api import KubeFault
from tests.controlplane.cluster import ControlPlane
from tests.rig.deployed import Right, granted, pod_templates, rendered
from tests.rig.pods_of_levels import PODS
from tests.rig.pods_of_ranges import QUOTAS, RANGES

OURS, JOBS = "dispatcher", "dispatcher-jobs"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def enforcing(control_plane: ControlPlane) -> AsyncIterator[dict[str, str]]:
    """A namespace for each level that forbids something."""
    made = {}
    for level in (BASELINE, RESTRICTED):
        made[level] = await control_plane.create_namespace()
        await pod_security_in_force(control_plane, made[level], level)
    yield made
    for name in made.values():
        await control_plane.delete_namespace(name)


@pytest.mark.parametrize("level", [BASELINE, RESTRICTED])
@pytest.mark.parametrize("name", PODS)
async def test_server_refuses_the_pods_that_the_doctor_refuses(
    control_plane: ControlPlane, enforcing: dict[str, str], name: str, level: str
) -> None:
    pod, passes = PODS[name]
    found = violations(pod, level)
    assert bool(found) is (passes == PRIVILEGED or (passes, level) == (BASELINE, RESTRICTED))
    assert bool(found) is await is_refused(control_plane, enforcing[level], pod)


async def is_refused(plane: ControlPlane, namespace: str, spec: Any) -> bool:
    body = {"metadata": {"name": "tried"}, "spec": spec}
    try:
        await plane.admin("POST", f"/api/v1/namespaces/{namespace}/pods", body, params={"dryRun": "All"})
    except KubeFault as fault:
        if fault.status != 403:
            raise
        return True
    return False


@pytest.mark.parametrize("name", RANGES)
async def test_limit_range_refuses_the_pods_that_the_doctor_refuses(
    control_plane: ControlPlane, namespace: str, name: str
) -> None:
    items, pod, words = RANGES[name]
    path = f"/api/v1/namespaces/{namespace}/limitranges"
    kept = await control_plane.admin("POST", path, {"metadata": {"name": "low"}, "spec": {"limits": items}})
    found = list(range_refusals(kept, pod, defaults_of([kept])))
    assert bool(found) is bool(words)
    assert bool(found) is await is_refused(control_plane, namespace, pod)


@pytest.mark.parametrize("name", QUOTAS)
async def test_quota_refuses_the_pods_that_the_doctor_refuses(
    control_plane: ControlPlane, namespace: str, name: str
) -> None:
    hard, pod, refused = QUOTAS[name]
    quota = read_quota(msgspec.json.encode(await quota_in_force(control_plane, namespace, hard)))
    assert bool(quota_refusal(quota, pod, needs_of_manifest(pod), frozenset())) is refused
    assert await is_refused(control_plane, namespace, pod) is refused


@pytest.mark.parametrize(("variant", "check_room"), [("default", True), ("namespaced", False)])
@pytest.mark.parametrize("program", [RUN, JANITOR])
def test_verbs_that_the_doctor_asks_for_are_those_of_the_manifests(
    program: str, variant: str, check_room: bool
) -> None:
    objects, site = rendered(variant), InstallationSite("dispatcher", OURS, JOBS, check_room)
    account = account_of(program, site)
    assert pod_templates(objects)[program]["spec"]["serviceAccountName"] == account
    assert set(rights(program, site)) == granted(objects, account)


def test_verbs_of_an_installation_with_caches_are_those_of_the_manifests() -> None:
    objects, site = (
        rendered("default", settings={"CACHE_ROOT": "/caches"}),
        InstallationSite("dispatcher", OURS, JOBS, True, True),
    )
    for program in (RUN, CACHE_KEEPER):
        account = account_of(program, site)
        assert pod_templates(objects)[program]["spec"]["serviceAccountName"] == account
        assert set(rights(program, site)) == granted(objects, account)


def test_verbs_of_the_extender_are_those_of_its_own_role() -> None:
    objects, site = (
        (*rendered("everything", only="scheduler"), *rendered("everything", only="scheduler-rbac")),
        InstallationSite("dispatcher", OURS, JOBS),
    )
    (role,) = [
        one
        for one in objects
        if (one["kind"], one["metadata"]["name"]) == ("ClusterRole", "dispatcher-extender.dispatcher")
    ]
    bound = {
        Right("cluster", group, resource, verb)
        for rule in role["rules"] for group in rule["apiGroups"] for resource in rule["resources"]
        for verb in rule["verbs"]
    }  # fmt: skip
    assert set(rights(EXTENDER, site)) == bound
    (deployment,) = [one for one in rendered("everything", only="scheduler") if one["kind"] == "Deployment"]
    assert deployment["spec"]["template"]["spec"]["serviceAccountName"] == account_of(EXTENDER, site)


def rights(program: str, site: InstallationSite) -> Iterator[Right]:
    for verb in verbs_of(program, site):
        yield Right(verb.namespace or "cluster", verb.group, verb.resource, verb.verb, verb.name)
